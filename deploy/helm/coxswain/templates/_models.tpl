{{/* Renders the objects of a part for the release's own model and for each of extraModels. (dict "ctx" $ "part" "head") */}}
{{- define "coxswain.each" -}}
{{- $which := .part -}}
{{- $ := .ctx -}}
{{- $part := printf "coxswain.part.%s" .part -}}
{{- if eq .part "secrets" -}}
{{- include "coxswain.checks" $ -}}
{{- include "coxswain.modelNames" $ -}}
{{- with $.Values.admin.existingSecret -}}
{{- include "coxswain.checkAdmin" (dict "ctx" $ "found" (lookup "v1" "Secret" $.Release.Namespace .)) -}}
{{- end -}}
{{- with $.Values.redis.existingSecret -}}
{{- include "coxswain.checkRedis" (dict "ctx" $ "found" (lookup "v1" "Secret" $.Release.Namespace .)) -}}
{{- end -}}
{{- end -}}
{{ include $part $ }}
{{- range $name, $own := $.Values.extraModels }}
{{- $ctx := include "coxswain.contextOf" (dict "ctx" $ "name" $name "own" $own) | fromYaml }}
{{- $ctx = merge (dict "Release" $.Release "Chart" $.Chart "Capabilities" $.Capabilities "Files" $.Files) $ctx }}
{{- if eq $which "secrets" }}{{ include "coxswain.checks" $ctx }}{{ end }}
---
{{ include $part $ctx }}
{{- end }}
{{- end -}}

{{/* Values of one of extraModels. A value that it does not set is the release's, except for values that belong to one model. Object
names end in the model's name; Redis and API keys are the release's. */}}
{{- define "coxswain.contextOf" -}}
{{- $ := .ctx -}}
{{- $v := omit (deepCopy $.Values) "extraModels" -}}
{{- $_ := set $v.model "servedNames" list -}}
{{- $_ := set $v.service "nodePort" nil -}}
{{- $_ := set $v.service "type" "ClusterIP" -}}
{{- $_ := set $v.head "config" dict -}}
{{- $_ := set $v.worker "config" dict -}}
{{- $_ := set $v.metrics "dashboards" false -}}
{{- $_ := set $v.gateway.state "existingClaim" "" -}}
{{- $_ := set $v.lora "modules" list -}}
{{- $_ := set $v.ingress "path" (printf "/%s" .name) -}}
{{- $_ := set $v.httpRoute "path" (printf "/%s" .name) -}}
{{- $_ := set $v.route "enabled" false -}}
{{- $_ := set $v.gateway "config" (dict "root_path" (printf "/%s" .name)) -}}
{{- $_ := set $v.serviceAccount "name" (include "coxswain.serviceAccount" $) -}}
{{- $_ := set $v.keys "existingSecret" "" -}}
{{- $_ := set $v.admin "existingSecret" (include "coxswain.adminSecret" $) -}}
{{- with include "coxswain.apiKeysSecret" $ -}}
{{- $_ := set $v.gateway.apiKeys "existingSecret" . -}}
{{- $_ := set $v.gateway.apiKeys "generate" false -}}
{{- end -}}
{{- $shared := $v.redis.enabled | ternary (include "coxswain.name" $) "" -}}
{{- $version := include "coxswain.redisVersion" $ -}}
{{- if $shared -}}
{{- $_ := set $v.redis "enabled" false -}}
{{- $_ := set $v.redis "existingSecret" (include "coxswain.redisSecret" $) -}}
{{- end -}}
{{- $v = mergeOverwrite $v (deepCopy .own) -}}
{{- $own := .own -}}
{{- range $part := list "worker" "gateway" -}}
{{- $said := default dict (get $own $part) -}}
{{- if and (hasKey $said "replicas") (kindIs "invalid" $said.replicas) -}}{{- $_ := unset (get $v $part) "replicas" -}}{{- end -}}
{{- end -}}
{{- $cache := default dict .own.cache -}}
{{- if not (hasKey $cache "existingClaim") -}}
{{- $isOther := or (hasKey $cache "accessMode") (hasKey $cache "storageClass") (hasKey $cache "size") -}}
{{- $isShared := and (eq $.Values.cache.kind "pvc") (eq $v.cache.kind "pvc") (not $isOther) -}}
{{- $_ := set $v.cache "existingClaim" ($isShared | ternary (include "coxswain.cacheClaim" $) "") -}}
{{- end -}}
{{- $_ := set $v "nameOverride" (printf "%s-%s" (include "coxswain.name" $) .name) -}}
{{- $_ := set $v "fullnameOverride" (printf "%s-%s" (include "coxswain.fullname" $) .name) -}}
{{- toYaml (dict "Values" $v "SharedRedis" $shared "SharedRedisVersion" $version) -}}
{{- end -}}

{{/* Refuses names that collide. Objects are named MODEL-PART, so a model `a-head` would have the name of the head of model `a`. */}}
{{- define "coxswain.modelNames" -}}
{{- $models := .Values.extraModels -}}
{{- range $long, $_ := $models -}}
{{- range $short, $_ := $models -}}
{{- if hasPrefix (printf "%s-" $short) $long -}}
{{- $part := trimPrefix (printf "%s-" $short) $long | splitList "-" | first -}}
{{- if has $part (list "head" "worker" "gateway" "redis" "smoke" "cache" "state" "keys" "admin" "api" "scale" "dashboard" "prefetch") -}}
{{- fail (printf "extraModels: %s would have the names of objects of %s (its %s): give one of the two another name" $long $short $part) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
