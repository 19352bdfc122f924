{{- define "coxswain.part.worker" -}}
{{- $f := include "coxswain.fullname" . -}}
{{- $me := dict "ctx" $ "part" "worker" -}}
{{- $v := .Values.worker -}}
apiVersion: v1
kind: Service
metadata:
  name: "{{ $f }}-worker"
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    {{- include "coxswain.selector" $me | nindent 4 }}
  ports:
    - name: admin
      port: 7001
      targetPort: admin
    {{- if gt (int $v.ranks) 1 }}
    {{- range $i := until (int $v.ranks) }}
    - name: "rank-{{ $i }}"
      port: {{ add 7002 $i }}
      targetPort: rank-{{ $i }}
    {{- end }}
    {{- end }}
{{- if eq $v.kind "StatefulSet" }}
{{- /* One set of pods, or one for each pool. A set's name has at most 52 characters (_names.tpl). */}}
{{- $sets := dict "" (include "coxswain.workerReplicas" .) }}
{{- if $v.pools }}{{ $sets = $v.pools }}{{ end }}
{{- range $pool, $said := $sets }}
{{- $me := dict "ctx" (merge (dict "Pool" $pool) $) "part" "worker" }}
{{- $name := empty $pool | ternary (printf "%s-worker" $f) (printf "%s-%s" (include "coxswain.cut" (dict "name" $f "max" 44)) $pool) }}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: "{{ $name }}"
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
  {{- with $v.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceName: "{{ $f }}-worker"
  {{- with include "coxswain.replicas" (dict "said" (toString $said) "found" (lookup "apps/v1" "StatefulSet" $.Release.Namespace $name)) }}
  {{- . | nindent 2 }}
  {{- end }}
  # Starts all pods at once: OrderedReady would wait for a replica's first pod before it makes the second.
  podManagementPolicy: Parallel
  revisionHistoryLimit: 5
  updateStrategy:
    type: RollingUpdate
    {{- if ne (int $v.maxUnavailable) 1 }}
    rollingUpdate:
      maxUnavailable: {{ $v.maxUnavailable }}
    {{- end }}
  selector:
    matchLabels:
      {{- include "coxswain.selector" $me | nindent 6 }}
      {{- with $pool }}
      coxswain.io/pool: {{ . }}
      {{- end }}
  template:
    metadata:
      {{- include "coxswain.podMetadata" $me | nindent 6 }}
    spec:
      {{- include "coxswain.workerPod" $me | nindent 6 }}
{{- end }}
{{- end }}
{{ end -}}
