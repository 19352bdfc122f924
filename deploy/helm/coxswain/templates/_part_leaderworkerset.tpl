{{- define "coxswain.part.leaderworkerset" -}}
{{- if eq .Values.worker.kind "LeaderWorkerSet" }}
{{- $f := include "coxswain.fullname" . -}}
{{- $me := dict "ctx" $ "part" "worker" -}}
{{- $world := include "coxswain.podsPerGroup" . | int -}}
{{- $name := printf "%s-worker" $f -}}
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata:
  name: "{{ $name }}"
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
spec:
  {{- if .Values.autoscaling.enabled }}
  {{- with (lookup "leaderworkerset.x-k8s.io/v1" "LeaderWorkerSet" .Release.Namespace $name) }}
  replicas: {{ .spec.replicas }}
  {{- end }}
  {{- else }}
  replicas: {{ div (int .Values.worker.replicas) $world }}
  {{- end }}
  startupPolicy: LeaderCreated
  rolloutStrategy:
    type: RollingUpdate
    rollingUpdateConfiguration:
      maxUnavailable: 1
      maxSurge: 0
  leaderWorkerTemplate:
    size: {{ $world }}
    # A rank that is lost costs one shard: the others keep theirs.
    restartPolicy: None
    workerTemplate:
      metadata:
        {{- include "coxswain.podMetadata" $me | nindent 8 }}
      spec:
        {{- include "coxswain.workerPod" $me | nindent 8 }}
{{- end }}
{{ end -}}
