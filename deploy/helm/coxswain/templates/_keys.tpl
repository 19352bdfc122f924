{{/* Keys that Helm makes once. `found` is the Secret in the cluster, or an empty dict. Its keys are kept and missing ones are made, so
an upgrade changes no key and adds those of a newer chart. (dict "found" (lookup ...)) */}}
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

{{/* Makes a random key of 32 characters for each name that has none. (dict "found" (lookup ...) "names" (list "admin-key")) */}}
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

{{/* Checks that a user's Secret has both keys, because pods would wait for a missing one for ever. A Secret that is not in the cluster
yet, or cannot be looked up, is accepted. (dict "ctx" $ "found" (lookup ...)) */}}
{{- define "coxswain.checkAdmin" -}}
{{- if .found -}}
{{- range splitList " " (include "coxswain.adminNames" .ctx) -}}
{{- if not (hasKey (default dict $.found.data) .) -}}
{{- fail (printf "Secret %s (admin.existingSecret) has no key %s: kubectl -n %s patch secret %s -p '{\"stringData\": {\"%s\": \"'$(openssl rand -hex 32)'\"}}'" $.ctx.Values.admin.existingSecret . $.ctx.Release.Namespace $.ctx.Values.admin.existingSecret .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
