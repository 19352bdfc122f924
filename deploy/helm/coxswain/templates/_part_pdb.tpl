{{- define "coxswain.part.pdb" -}}
{{- if .Values.pdb.enabled }}
{{- $f := include "coxswain.fullname" . -}}
{{- $world := include "coxswain.podsPerGroup" . | int -}}
{{- $workers := .Values.autoscaling.enabled | ternary (mul (int .Values.autoscaling.minGroups) $world | int) (int .Values.worker.replicas) -}}
{{- $gateways := .Values.gateway.autoscaling.enabled | ternary (int .Values.gateway.autoscaling.minReplicas) (int .Values.gateway.replicas) -}}
{{- /* One of one would never let a node be drained: such parts have none. Nor have those that only one node can hold: what was
evicted first would wait there for what its budget keeps. */}}
{{- $isOneNode := include "coxswain.sameNode" . }}
{{- if and (ge $gateways 2) (not $isOneNode) }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: "{{ $f }}-gateway"
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" "gateway") | nindent 4 }}
spec:
  minAvailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "coxswain.selector" (dict "ctx" $ "part" "gateway") | nindent 6 }}
{{- end }}
{{- if .Values.head.standby }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: "{{ $f }}-head"
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" "head") | nindent 4 }}
spec:
  minAvailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "coxswain.selector" (dict "ctx" $ "part" "head") | nindent 6 }}
{{- end }}
{{- if and (ge $workers (mul 2 $world | int)) (not $isOneNode) }}
---
# One group's worth at a time: the others serve.
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: "{{ $f }}-worker"
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" "worker") | nindent 4 }}
spec:
  maxUnavailable: {{ $world }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "coxswain.selector" (dict "ctx" $ "part" "worker") | nindent 6 }}
{{- end }}
{{- end }}
{{ end -}}
