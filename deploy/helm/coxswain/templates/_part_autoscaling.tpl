{{- define "coxswain.part.autoscaling" -}}
{{- $f := include "coxswain.fullname" . -}}
{{- $a := .Values.autoscaling -}}
{{- $world := include "coxswain.world" . | int -}}
{{- if and $a.enabled (include "coxswain.isModel" .) }}
{{- /* A StatefulSet is scaled in pods, a LeaderWorkerSet in replicas of the model. */}}
{{- $lws := eq .Values.worker.kind "LeaderWorkerSet" }}
{{- $pods := include "coxswain.podsPerGroup" . | int }}
{{- $each := $lws | ternary 1 $pods }}
{{- /* Workers in one unit of the scaled object. */}}
{{- $wanted := $lws | ternary $world (int .Values.worker.ranks) }}
{{- $target := dict "apiVersion" ($lws | ternary "leaderworkerset.x-k8s.io/v1" "apps/v1") "kind" .Values.worker.kind "name" (include "coxswain.workerName" .) }}
{{- $groups := $lws | ternary 1 (max 1 (div (int .Values.worker.ranks) $world)) }}
{{- $toZero := eq (int $a.minGroups) 0 }}
{{- $min := divf (mul (max 1 (int $a.minGroups)) $each) $groups | ceil | int }}
{{- $max := divf (mul (int $a.maxGroups) $each) $groups | ceil | int }}
{{- /* Whole replicas are removed at a time. The head itself has waited until fewer were enough for long enough (scale_calm_s). */}}
{{- $behavior := dict "scaleUp" (dict "stabilizationWindowSeconds" 0) "scaleDown" (dict "stabilizationWindowSeconds" (int $a.stabilizationSeconds) "policies" (list (dict "type" "Pods" "value" $each "periodSeconds" 60))) }}
{{- if eq $a.kind "keda" }}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: "{{ $f }}-worker"
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" "worker") | nindent 4 }}
spec:
  scaleTargetRef:
    {{- toYaml $target | nindent 4 }}
  {{- if $toZero }}
  # KEDA itself scales from zero to a whole replica and back, so that the HPA never runs a part of a replica.
  idleReplicaCount: 0
  # The head itself has waited for the time without requests (scale_idle_s).
  cooldownPeriod: {{ $a.cooldownSeconds }}
  {{- end }}
  minReplicaCount: {{ $min }}
  maxReplicaCount: {{ $max }}
  pollingInterval: {{ $a.pollingSeconds }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        {{- toYaml $behavior | nindent 8 }}
  triggers:
    {{- if $a.prometheusUrl }}
    - type: prometheus
      metricType: AverageValue
      metadata:
        serverAddress: {{ $a.prometheusUrl | quote }}
        query: {{ printf "max(coxswain_head_desired_workers{namespace=%q, pod=~%q})" .Release.Namespace (printf "%s-head-.*" $f) | quote }}
        threshold: {{ $wanted | quote }}
        {{- if $toZero }}
        activationThreshold: "0"
        {{- end }}
        # A missing value must not count as 0: KEDA would remove workers while a head restarts.
        ignoreNullValues: "false"
    {{- else }}
    # The head answers with the wanted number of workers: docs/reference/admin-api.md, GET /scale.
    - type: metrics-api
      metricType: AverageValue
      metadata:
        url: http://{{ $f }}-head.{{ .Release.Namespace }}.svc:8265/scale
        valueLocation: desired_workers
        targetValue: {{ $wanted | quote }}
        {{- if $toZero }}
        activationTargetValue: "0"
        {{- end }}
        authMode: bearer
      authenticationRef:
        name: "{{ $f }}-scale"
    {{- end }}
{{- if not $a.prometheusUrl }}
---
apiVersion: keda.sh/v1alpha1
kind: TriggerAuthentication
metadata:
  name: "{{ $f }}-scale"
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" "worker") | nindent 4 }}
spec:
  secretTargetRef:
    - parameter: token
      name: "{{ include "coxswain.adminSecret" . }}"
      key: "{{ .Values.admin.key }}"
{{- end }}
{{- else }}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: "{{ $f }}-worker"
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" "worker") | nindent 4 }}
spec:
  scaleTargetRef:
    {{- toYaml $target | nindent 4 }}
  minReplicas: {{ $min }}
  maxReplicas: {{ $max }}
  metrics:
    # The metric is a number of workers. A metrics adapter (prometheus-adapter) provides it.
    - type: External
      external:
        metric:
          name: coxswain_head_desired_workers
          selector:
            matchLabels:
              namespace: "{{ .Release.Namespace }}"
              service: "{{ $f }}-head"
        target:
          type: AverageValue
          averageValue: {{ $wanted | quote }}
  behavior:
    {{- toYaml $behavior | nindent 4 }}
{{- end }}
{{- end }}
{{- $g := .Values.gateway.autoscaling -}}
{{- if and $g.enabled (include "coxswain.isRelease" .) }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: "{{ $f }}-gateway"
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" "gateway") | nindent 4 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: "{{ $f }}-gateway"
  minReplicas: {{ $g.minReplicas }}
  maxReplicas: {{ $g.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ $g.targetCPU }}
{{- end }}
{{ end -}}
