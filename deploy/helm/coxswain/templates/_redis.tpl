{{/* URL of the Redis, with its password, from a Secret or from the values. */}}
{{- define "coxswain.redisEnv" -}}
{{- if include "coxswain.usesRedis" . -}}
- name: COX_REDIS
  {{- if .Values.redis.url }}
  value: {{ .Values.redis.url | quote }}
  {{- else }}
  valueFrom:
    secretKeyRef:
      name: "{{ include "coxswain.redisSecret" . }}"
      key: "{{ .Values.redis.key }}"
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "coxswain.redisSecret" -}}
{{- default (printf "%s-redis" (include "coxswain.fullname" .)) .Values.redis.existingSecret -}}
{{- end -}}

{{/* Password of the release's own Redis, in base64: the one in the cluster, or a new one. A new one is kept beside the values, so that
all templates of a rendering use the same. */}}
{{- define "coxswain.redisPassword" -}}
{{- $r := .Values.redis -}}
{{- if not $r.password -}}
{{- $found := lookup "v1" "Secret" .Release.Namespace (include "coxswain.redisSecret" .) -}}
{{- $_ := set $r "password" (dig "data" "password" "" (default dict $found) | default (randAlphaNum 32 | b64enc)) -}}
{{- end -}}
{{- $r.password -}}
{{- end -}}

{{/* Annotation that restarts the Redis and its clients when the password changes; with different passwords nothing would work. The
hash is too short to reveal the password. For a user's Secret it is the Secret's version. It is empty when no Secret can be looked
up. */}}
{{- define "coxswain.redisVersion" -}}
{{- if .SharedRedisVersion -}}
{{- .SharedRedisVersion -}}
{{- else if .Values.redis.enabled -}}
{{- if .Values.redis.existingSecret -}}
{{- dig "metadata" "resourceVersion" "" (default dict (lookup "v1" "Secret" .Release.Namespace .Values.redis.existingSecret)) -}}
{{- else -}}
{{- include "coxswain.redisPassword" . | sha256sum | trunc 8 -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Checks a user's Secret for the release's own Redis: the Redis reads one key, its clients another. (dict "ctx" $ "found" (lookup ...)) */}}
{{- define "coxswain.checkRedis" -}}
{{- $r := .ctx.Values.redis -}}
{{- if and .found $r.enabled -}}
{{- range list "password" $r.key -}}
{{- if not (hasKey (default dict $.found.data) .) -}}
{{- fail (printf "Secret %s (redis.existingSecret) has no key %s: with redis.enabled it has the password of the Redis as password and redis://:PASSWORD@%s-redis:6379 as %s" $r.existingSecret . (include "coxswain.fullname" $.ctx) $r.key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
