{{/* Objects of a release with one model, or with several (values.models). With several, each model has its own head and workers, and the
release has one set of gateways. A context of one of several models has `Gateways`, the name of the release's gateways. */}}

{{/* "true" when a context renders the head and the workers of a model. */}}
{{- define "coxswain.isModel" -}}
{{- if not .Values.models -}}true{{- end -}}
{{- end -}}

{{/* "true" when a context renders what the release has once: gateways, keys, Redis. */}}
{{- define "coxswain.isRelease" -}}
{{- if not .Gateways -}}true{{- end -}}
{{- end -}}

{{/* Contexts of all models, {NAME: context}; empty in a release with one model. Functions of the context that a template reads are not
in the text that `include` returns, so they are added here. (dict "ctx" $ "into" dict) */}}
{{- define "coxswain.contexts" -}}
{{- $ := .ctx -}}
{{- $into := .into -}}
{{- range $name, $own := $.Values.models -}}
{{- $ctx := include "coxswain.contextOf" (dict "ctx" $ "name" $name "own" $own) | fromYaml -}}
{{- $_ := set $into $name (merge (dict "Release" $.Release "Chart" $.Chart "Capabilities" $.Capabilities "Files" $.Files) $ctx) -}}
{{- end -}}
{{- end -}}

{{/* Renders the objects of a part: those of the release, then those of each model. (dict "ctx" $ "part" "head") */}}
{{- define "coxswain.each" -}}
{{- $which := .part -}}
{{- $ := .ctx -}}
{{- $part := printf "coxswain.part.%s" .part -}}
{{- $contexts := dict -}}
{{- include "coxswain.contexts" (dict "ctx" $ "into" $contexts) -}}
{{- if eq .part "secrets" -}}
{{- include "coxswain.modelNames" $ -}}
{{- include "coxswain.releaseChecks" $ -}}
{{- if not $contexts }}{{ include "coxswain.modelChecks" $ }}{{ end -}}
{{- range $contexts }}{{ include "coxswain.modelChecks" . }}{{ end -}}
{{- with $.Values.admin.existingSecret -}}
{{- include "coxswain.checkAdmin" (dict "ctx" $ "found" (lookup "v1" "Secret" $.Release.Namespace .)) -}}
{{- end -}}
{{- with $.Values.redis.existingSecret -}}
{{- include "coxswain.checkRedis" (dict "ctx" $ "found" (lookup "v1" "Secret" $.Release.Namespace .)) -}}
{{- end -}}
{{- end -}}
{{- if or (not $contexts) (not (has $which (list "head" "worker" "leaderworkerset"))) }}
{{ include $part $ }}
{{- end }}
{{- if not (has $which (list "gateway" "ingress" "secrets" "smoke")) }}
{{- range $contexts }}
---
{{ include $part . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Values of one of several models. A value that it does not set is the release's, except for values that belong to one model. Names of
objects end in the model's name; keys, the cache and the Redis are the release's. */}}
{{- define "coxswain.contextOf" -}}
{{- $ := .ctx -}}
{{- $v := omit (deepCopy $.Values) "models" -}}
{{- $_ := set $v.model "servedNames" list -}}
{{- $_ := set $v.head "config" dict -}}
{{- $_ := set $v.worker "config" dict -}}
{{- $_ := set $v.gateway "config" dict -}}
{{- $_ := set $v.metrics "dashboards" false -}}
{{- $_ := set $v.lora "modules" list -}}
{{- $_ := set $v.gateway "state" (dict "enabled" false) -}}
{{- $_ := set $v.serviceAccount "name" (include "coxswain.serviceAccount" $) -}}
{{- $_ := set $v.keys "existingSecret" (include "coxswain.keysSecret" $) -}}
{{- $_ := set $v.admin "existingSecret" (include "coxswain.adminSecret" $) -}}
{{- if eq $v.cache.kind "pvc" -}}{{- $_ := set $v.cache "existingClaim" (include "coxswain.cacheClaim" $) -}}{{- end -}}
{{- $shared := $v.redis.enabled | ternary (include "coxswain.name" $) "" -}}
{{- $version := include "coxswain.redisVersion" $ -}}
{{- if $shared -}}
{{- $_ := set $v.redis "enabled" false -}}
{{- $_ := set $v.redis "existingSecret" (include "coxswain.redisSecret" $) -}}
{{- end -}}
{{- $v = mergeOverwrite $v (omit (deepCopy .own) "keepNames" "fallback" "maxRequests") -}}
{{- $said := default dict .own.worker -}}
{{- if and (hasKey $said "replicas") (kindIs "invalid" $said.replicas) -}}{{- $_ := unset $v.worker "replicas" -}}{{- end -}}
{{- $end := default false .own.keepNames | ternary "" (printf "-%s" .name) -}}
{{- $_ := set $v "nameOverride" (printf "%s%s" (include "coxswain.name" $) $end) -}}
{{- $_ := set $v "fullnameOverride" (printf "%s%s" (include "coxswain.fullname" $) $end) -}}
{{- toYaml (dict "Values" $v "Gateways" (include "coxswain.name" $) "SharedRedis" $shared "SharedRedisVersion" $version) -}}
{{- end -}}

{{/* The gateways' file of models (docs/develop/many-models.md, "The set is a file"). The gateways read it again when it changes. */}}
{{- define "coxswain.modelsFile" -}}
{{- $contexts := dict -}}
{{- include "coxswain.contexts" (dict "ctx" . "into" $contexts) -}}
{{- $models := list -}}
{{- range $key, $ctx := $contexts -}}
{{- $v := $ctx.Values -}}
{{- $names := default (list $key) $v.model.servedNames -}}
{{- $entry := deepCopy $v.gateway.config -}}
{{- $_ := set $entry "name" (first $names) -}}
{{- with rest $names -}}{{- $_ := set $entry "aliases" . -}}{{- end -}}
{{- $_ := set $entry "model" $v.model.name -}}
{{- $_ := set $entry "head" (include "coxswain.headAddresses" $ctx) -}}
{{- if and (include "coxswain.scalesToZero" $ctx) (not (hasKey $entry "queue_timeout")) -}}
{{- $_ := set $entry "queue_timeout" (include "coxswain.startSeconds" $ctx | int) -}}
{{- end -}}
{{- $own := get $.Values.models $key -}}
{{- with $own.fallback -}}{{- $_ := set $entry "fallback" . -}}{{- end -}}
{{- with $own.maxRequests -}}{{- $_ := set $entry "max_requests" (int .) -}}{{- end -}}
{{- $models = append $models $entry -}}
{{- end -}}
{{- toYaml (merge (dict "managed_by" "helm" "models" $models) (.Values.routes | empty | ternary dict (dict "routes" .Values.routes))) -}}
{{- end -}}

{{/* Refuses names that collide. Objects are named MODEL-PART, so a model `a-head` would have the name of the head of model `a`. */}}
{{- define "coxswain.modelNames" -}}
{{- $models := .Values.models -}}
{{- $keepers := list -}}
{{- $owners := dict -}}
{{- $firsts := list -}}
{{- range $long, $own := $models -}}
{{- range $short, $_ := $models -}}
{{- if hasPrefix (printf "%s-" $short) $long -}}
{{- $part := trimPrefix (printf "%s-" $short) $long | splitList "-" | first -}}
{{- if has $part (list "head" "worker" "gateway" "redis" "smoke" "cache" "state" "keys" "admin" "api" "scale" "dashboard" "prefetch" "prefill" "decode") -}}
{{- fail (printf "models: %s would have the names of objects of %s (its %s): give one of the two another name" $long $short $part) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $firsts = append $firsts (default (list $long) $own.model.servedNames | first) -}}
{{- if $own.keepNames -}}{{- $keepers = append $keepers $long -}}{{- end -}}
{{- range default (list $long) $own.model.servedNames -}}
{{- if hasKey $owners . -}}
{{- fail (printf "models: %s is a name of %s and of %s. The gateways find a model by its name: give one of the two another name (model.servedNames)" . (get $owners .) $long) -}}
{{- end -}}
{{- $_ := set $owners . $long -}}
{{- end -}}
{{- end -}}
{{- range $name, $own := $models -}}
{{- if and $own.fallback (not (has $own.fallback $firsts)) -}}
{{- fail (printf "models.%s.fallback %s: no model has this as its first name (model.servedNames, or the key in models)" $name $own.fallback) -}}
{{- end -}}
{{- end -}}
{{- $routes := list -}}
{{- range .Values.routes -}}
{{- $route := .name -}}
{{- $sum := 0 -}}
{{- range .targets -}}{{- $sum = add $sum (hasKey . "weight" | ternary (int .weight) 1) -}}{{- end -}}
{{- if or (eq (int $sum) 0) (has $route $routes) -}}
{{- fail (printf "routes: %s needs a name that no other route has, and a target with a weight above 0" $route) -}}
{{- end -}}
{{- $routes = append $routes $route -}}
{{- $targets := list -}}
{{- range .targets -}}
{{- if has .model $targets -}}{{- fail (printf "routes: %s has the target %s twice. Add the two weights" $route .model) -}}{{- end -}}
{{- $targets = append $targets .model -}}
{{- end -}}
{{- with .mirror -}}{{- $targets = append $targets . -}}{{- end -}}
{{- range $targets -}}
{{- if not (has . $firsts) -}}
{{- fail (printf "routes: %s leads to %s, but no model has this as its first name (model.servedNames, or the key in models)" $route .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if gt (len $keepers) 1 -}}
{{- fail (printf "models: %s have keepNames, but only one model can have the names of a release with one model" (join " and " $keepers)) -}}
{{- end -}}
{{- if and $models (or (ne .Values.model.name "demo") .Values.model.servedNames) -}}
{{- fail (printf "model.name %s and models: with models the release serves those models only. Move model to models.NAME.model; with keepNames: true the pods stay (docs/reference/chart.md, several models)" .Values.model.name) -}}
{{- end -}}
{{- end -}}
