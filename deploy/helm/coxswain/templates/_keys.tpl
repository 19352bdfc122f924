{{/* Keys that Helm makes once. `found` is the Secret that is in the cluster, or an empty dict: what it has is kept, what it
lacks is made, so an upgrade changes no key and adds those that a newer chart wants. (dict "found" (lookup ...)) */}}
{{- define "coxswain.keysData" -}}
{{- $data := deepCopy (default dict .found.data) -}}
{{- range $role := list "head" "worker" "gateway" -}}
{{- $key := printf "%s.key" $role -}}
{{- $public := printf "%s.pub" $role -}}
{{- if not (and (hasKey $data $key) (hasKey $data $public)) -}}
{{- $pair := genSelfSignedCertWithKey $role nil nil 36500 (genPrivateKey "ed25519") -}}
{{- $_ := set $data $key (b64enc $pair.Key) -}}
{{- $_ := set $data $public (b64enc $pair.Cert) -}}
{{- end -}}
{{- end -}}
{{- if not (hasKey $data "authorized") -}}
{{- $_ := set $data "authorized" (b64enc "worker @worker.pub\ngateway @gateway.pub\n") -}}
{{- end -}}
{{- toYaml $data -}}
{{- end -}}

{{/* A random key of 32 characters below each name. (dict "found" (lookup ...) "names" (list "admin-key")) */}}
{{- define "coxswain.randomData" -}}
{{- $data := deepCopy (default dict .found.data) -}}
{{- range .names -}}
{{- if not (hasKey $data .) -}}
{{- $_ := set $data . (b64enc (randAlphaNum 32)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $data -}}
{{- end -}}

{{- define "coxswain.adminNames" -}}
{{- include "coxswain.adminKey" (dict "ctx" . "part" "head") }} {{ include "coxswain.adminKey" (dict "ctx" . "part" "worker") -}}
{{- end -}}

{{/* A Secret that was made by hand has to have both keys: pods would wait for one that it lacks without an end. What is not in
the cluster yet, or cannot be looked for, is believed. (dict "ctx" $ "found" (lookup ...)) */}}
{{- define "coxswain.checkAdmin" -}}
{{- if .found -}}
{{- range splitList " " (include "coxswain.adminNames" .ctx) -}}
{{- if not (hasKey (default dict $.found.data) .) -}}
{{- fail (printf "Secret %s (admin.existingSecret) has no key %s: kubectl -n %s patch secret %s -p '{\"stringData\": {\"%s\": \"'$(openssl rand -hex 32)'\"}}'" $.ctx.Values.admin.existingSecret . $.ctx.Release.Namespace $.ctx.Values.admin.existingSecret .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
