{{- define "coxswain.part.pdb" -}}
{{- if .Values.pdb.enabled }}
{{- $f := include "coxswain.fullname" . -}}
{{- $world := include "coxswain.podsPerGroup" . | int -}}
{{- $said := include "coxswain.workerReplicas" . -}}
{{- $areGroups := ge (int $said) (mul 2 $world | int) -}}
{{- if not $said -}}{{- $areGroups = not (and .Values.autoscaling.enabled (lt (int .Values.autoscaling.maxGroups) 2)) -}}{{- end -}}
{{- $gateways := include "coxswain.gatewayReplicas" . -}}
{{- $areGateways := ge (int $gateways) 2 -}}
{{- if not $gateways -}}{{- $areGateways = not (and .Values.gateway.autoscaling.enabled (lt (int .Values.gateway.autoscaling.maxReplicas) 2)) -}}{{- end -}}
{{- /* What there can be several of has one, however many there are now: it says how many may be away, which for one of one is all,
and a node can be drained. What only one node can hold has none: what was evicted first would wait there for what its budget keeps. */}}
{{- $isOneNode := include "coxswain.sameNode" . }}
{{- if and $areGateways (not $isOneNode) }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: "{{ $f }}-gateway"
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" "gateway") | nindent 4 }}
spec:
  maxUnavailable: 50% # rounded up
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
{{- if and $areGroups (not $isOneNode) }}
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
