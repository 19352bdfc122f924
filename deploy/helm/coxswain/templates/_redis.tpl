{{/* The Redis's URL, with its password, from a Secret or as it was given. */}}
{{- define "coxswain.redisEnv" -}}
{{- if include "coxswain.usesRedis" . -}}
- name: COX_REDIS
  {{- if .Values.redis.url }}
  value: {{ .Values.redis.url | quote }}
  {{- else }}
  valueFrom:
    secretKeyRef:
      name: "{{ default (printf "%s-redis" (include "coxswain.fullname" .)) .Values.redis.existingSecret }}"
      key: "{{ .Values.redis.key }}"
  {{- end }}
{{- end -}}
{{- end -}}
