{{- define "coxswain.part.leaderworkerset" -}}
{{- if eq .Values.worker.kind "LeaderWorkerSet" }}
{{- $me := dict "ctx" $ "part" "worker" -}}
{{- $world := include "coxswain.podsPerGroup" . | int -}}
{{- $name := include "coxswain.workerName" . -}}
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata:
  name: "{{ $name }}"
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
  {{- with .Values.worker.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- $said := include "coxswain.workerReplicas" . }}
  {{- with include "coxswain.replicas" (dict "said" ($said | empty | ternary "" (div (int $said) $world | toString)) "found" (lookup "leaderworkerset.x-k8s.io/v1" "LeaderWorkerSet" .Release.Namespace $name)) }}
  {{- . | nindent 2 }}
  {{- end }}
  startupPolicy: LeaderCreated
  rolloutStrategy:
    type: RollingUpdate
    rollingUpdateConfiguration:
      maxUnavailable: 1
      maxSurge: 0
  leaderWorkerTemplate:
    size: {{ $world }}
    # A lost rank loads only its own shard again; the other ranks keep theirs.
    restartPolicy: None
    workerTemplate:
      metadata:
        {{- include "coxswain.podMetadata" $me | nindent 8 }}
      spec:
        {{- include "coxswain.workerPod" $me | nindent 8 }}
{{- end }}
{{ end -}}
