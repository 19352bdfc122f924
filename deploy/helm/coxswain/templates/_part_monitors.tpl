{{- define "coxswain.part.monitors" -}}
{{- $f := include "coxswain.fullname" . -}}
{{- $m := .Values.metrics -}}
{{- $https := .Values.gateway.tls.existingSecret | empty | not -}}
{{- $parts := list -}}
{{- if include "coxswain.isModel" . }}{{ $parts = list "head" "worker" }}{{ end }}
{{- if include "coxswain.isRelease" . }}{{ $parts = append $parts "gateway" }}{{ end }}
{{- range $part := $parts }}
{{- $me := dict "ctx" $ "part" $part }}
{{- $tls := and $https (eq $part "gateway") }}
{{- /* With several ranks in a pod, each rank has its own port for metrics. */}}
{{- $ports := list "admin" }}
{{- if and (eq $part "worker") (gt (int $.Values.worker.ranks) 1) }}
{{- $ports = list }}
{{- range until (int $.Values.worker.ranks) }}{{ $ports = append $ports (printf "rank-%d" .) }}{{ end }}
{{- end }}
{{- if $m.serviceMonitor }}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: "{{ $f }}-{{ $part }}"
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
    {{- with $m.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "coxswain.selector" $me | nindent 6 }}
  endpoints:
    {{- range $ports }}
    - port: {{ . }}
      {{- include "coxswain.scrape" (dict "ctx" $ "part" $part "tls" $tls) | nindent 6 }}
    {{- end }}
{{- end }}
{{- if $m.podMonitor }}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: "{{ $f }}-{{ $part }}"
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
    {{- with $m.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "coxswain.selector" $me | nindent 6 }}
  podMetricsEndpoints:
    {{- range $ports }}
    - port: {{ . }}
      {{- include "coxswain.scrape" (dict "ctx" $ "part" $part "tls" $tls) | nindent 6 }}
    {{- end }}
{{- end }}
{{- end }}
{{- if $m.dashboards }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: "{{ $f }}-dashboard"
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" "dashboard") | nindent 4 }}
    {{- with $m.dashboardLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
data:
  # One dashboard for all releases, with variables for namespace and release.
  {{ $f }}.json: |
    {{- .Files.Get "dashboards/coxswain.json" | nindent 4 }}
{{- end }}
{{ end -}}
