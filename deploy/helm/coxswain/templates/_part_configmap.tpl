{{- define "coxswain.part.configmap" -}}
{{- $f := include "coxswain.fullname" . -}}
{{- range $part := list "head" "worker" "gateway" }}
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
{{ end -}}
