{{/* How Prometheus asks: with the admin key. (dict "ctx" $ "tls" true) */}}
{{- define "coxswain.scrape" -}}
path: /metrics
interval: {{ .ctx.Values.metrics.interval }}
authorization:
  type: Bearer
  credentials:
    name: {{ include "coxswain.adminSecret" .ctx }}
    key: {{ .ctx.Values.admin.key }}
{{- if .tls }}
scheme: https
tlsConfig:
  insecureSkipVerify: true # by the pod's address, which no certificate names
{{- end }}
{{- end -}}
