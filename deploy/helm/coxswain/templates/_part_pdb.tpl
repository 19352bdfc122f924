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
{{- /* A part that can have several pods gets a budget, whatever their present number. The budget limits how many may be missing; with a
single pod that is all of them, so its node can be drained. Pods that must share one node get no budget: evicted pods would wait
on that node for pods that the budget keeps there. */}}
{{- $isOneNode := include "coxswain.sameNode" . }}
{{- if and (include "coxswain.isRelease" .) $areGateways (not $isOneNode) }}
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
{{- if and (include "coxswain.isModel" .) .Values.head.standby }}
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
{{- if and (include "coxswain.isModel" .) $areGroups (not $isOneNode) }}
---
# Evicts at most one replica of the model at a time; the others serve.
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
