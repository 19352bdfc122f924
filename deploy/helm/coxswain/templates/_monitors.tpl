{{/* Scrape settings of Prometheus, with the key that the part accepts. (dict "ctx" $ "part" "head" "tls" true) */}}
{{- define "coxswain.scrape" -}}
path: /metrics
interval: {{ .ctx.Values.metrics.interval }}
authorization:
  type: Bearer
  credentials:
    name: "{{ include "coxswain.adminSecret" .ctx }}"
    key: "{{ include "coxswain.adminKey" . }}"
{{- if .tls }}
scheme: https
tlsConfig:
  insecureSkipVerify: true # Prometheus uses the pod's address, which no certificate names
{{- end }}
{{- end -}}
