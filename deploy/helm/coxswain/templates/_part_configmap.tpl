{{- define "coxswain.part.configmap" -}}
{{- $f := include "coxswain.fullname" . -}}
{{- $parts := list -}}
{{- if include "coxswain.isModel" . }}{{ $parts = list "head" "worker" }}{{ end }}
{{- if include "coxswain.isRelease" . }}{{ $parts = append $parts "gateway" }}{{ end }}
{{- range $part := $parts }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: "{{ $f }}-{{ $part }}"
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" $part) | nindent 4 }}
data:
  {{ $part }}.yaml: |
    {{- include "coxswain.configFile" (dict "ctx" $ "part" $part) | nindent 4 }}
{{- end }}
{{- if .Values.models }}
---
# Gateways look at this file twice a second. A change replaces no pod, so there is no checksum of it.
apiVersion: v1
kind: ConfigMap
metadata:
  name: "{{ $f }}-models"
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" "gateway") | nindent 4 }}
data:
  models.yaml: |
    {{- include "coxswain.modelsFile" . | nindent 4 }}
{{- end }}
{{ end -}}
