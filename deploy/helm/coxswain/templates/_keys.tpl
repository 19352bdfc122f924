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

{{/* One random key of 32 characters below a name. (dict "found" (lookup ...) "key" "admin-key") */}}
{{- define "coxswain.randomData" -}}
{{- $data := deepCopy (default dict .found.data) -}}
{{- if not (hasKey $data .key) -}}
{{- $_ := set $data .key (b64enc (randAlphaNum 32)) -}}
{{- end -}}
{{- toYaml $data -}}
{{- end -}}
