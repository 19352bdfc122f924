{{/* The Redis's URL, with its password, from a Secret or as it was given. */}}
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

{{/* The password of the release's own Redis, in base64: that of the cluster, or one that is made once for all templates of a
rendering, which is kept beside the values. */}}
{{- define "coxswain.redisPassword" -}}
{{- $r := .Values.redis -}}
{{- if not $r.password -}}
{{- $found := lookup "v1" "Secret" .Release.Namespace (include "coxswain.redisSecret" .) -}}
{{- $_ := set $r "password" (dig "data" "password" "" (default dict $found) | default (randAlphaNum 32 | b64enc)) -}}
{{- end -}}
{{- $r.password -}}
{{- end -}}

{{/* Who has to begin anew when the password is another one: a Redis and those who ask it that disagree are an outage. The hash is
too short to find the password by. Of a Secret made by hand it is its version; where none can be looked for there is nothing. */}}
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

{{/* A Secret made by hand, for the release's own Redis: it and those who ask it take a key each. (dict "ctx" $ "found" (lookup ...)) */}}
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
