{{/* Configuration files of the programs: the options that the chart sets, and those of <role>.config. The schema refuses the chart's
own options in <role>.config. */}}

{{/* Device of the workers: cpu, cuda or null. The model null always uses the device null. */}}
{{- define "coxswain.device" -}}
{{- if eq .Values.model.name "null" -}}null{{- else -}}{{ .Values.worker.device }}{{- end -}}
{{- end -}}

{{/* Workers of one replica of the model. */}}
{{- define "coxswain.world" -}}
{{- mul (int .Values.worker.tp) (int .Values.worker.pp) -}}
{{- end -}}

{{/* Pods of one replica of the model, at least one. A pod with several ranks counts for several workers. */}}
{{- define "coxswain.podsPerGroup" -}}
{{- max 1 (div (include "coxswain.world" . | int) (int .Values.worker.ranks)) -}}
{{- end -}}

{{- define "coxswain.headReplicas" -}}
{{- .Values.head.standby | ternary 2 1 -}}
{{- end -}}

{{/* Addresses of the heads. They are the pods' names, which stay when the IP addresses change. */}}
{{- define "coxswain.headAddresses" -}}
{{- $f := include "coxswain.fullname" . -}}
{{- $all := list -}}
{{- range $i := until (int (include "coxswain.headReplicas" .)) -}}
{{- $all = append $all (printf "%s-head-%d.%s-head:7000" $f $i $f) -}}
{{- end -}}
{{- join "," $all -}}
{{- end -}}

{{- define "coxswain.usesRedis" -}}
{{- if or .Values.redis.enabled .Values.redis.url .Values.redis.existingSecret -}}true{{- end -}}
{{- end -}}

{{- define "coxswain.scalesToZero" -}}
{{- if and .Values.autoscaling.enabled (eq (int .Values.autoscaling.minGroups) 0) -}}true{{- end -}}
{{- end -}}

{{/* Seconds that the start of the first replica may take: a node, a pod, the weights. */}}
{{- define "coxswain.startSeconds" -}}
{{- $s := .Values.head.config.scale_start_s -}}
{{- kindIs "invalid" $s | ternary 180 (int $s) -}}
{{- end -}}

{{- define "coxswain.commonOptions" -}}
keys_dir: /etc/coxswain/keys
{{- with .Values.model.servedNames }}
served_model_name: {{ toJson . }}
{{- end }}
{{- end -}}

{{- define "coxswain.headOptions" -}}
{{ include "coxswain.commonOptions" . }}
admin_key_file: /etc/coxswain/admin/{{ include "coxswain.adminKey" (dict "ctx" . "part" "head") }}
host: {{ .Values.listen | quote }}
port: 7000
admin_host: {{ .Values.listen | quote }}
admin_port: 8265
tp: {{ .Values.worker.tp }}
pp: {{ .Values.worker.pp }}
{{- if .Values.elasticTp.enabled }}
elastic_tp: true
elastic_tp_wait: {{ .Values.elasticTp.wait }}
{{- end }}
{{- with .Values.model.servedNames }}
model: {{ first . | quote }}
{{- end }}
{{- if include "coxswain.usesRedis" . }}
{{- /* Neither part contains a dot, so team/a-b and team-a/b have different leases. */}}
cluster_name: {{ include "coxswain.cut" (dict "name" (printf "%s.%s" .Release.Namespace (include "coxswain.fullname" .)) "max" 63) | quote }}
{{- end }}
{{- if .Values.autoscaling.enabled }}
scale_min: {{ mul (int .Values.autoscaling.minGroups) (include "coxswain.world" . | int) }}
{{- if include "coxswain.scalesToZero" . }}
scale_start_s: {{ include "coxswain.startSeconds" . }}
{{- end }}
scale_max: {{ mul (int .Values.autoscaling.maxGroups) (include "coxswain.world" . | int) }}
{{- end }}
{{- if .Values.lora.enabled }}
enable_lora: true
max_loras: {{ .Values.lora.maxLoras }}
{{- with .Values.lora.modules }}
lora_modules: {{ toJson . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "coxswain.workerOptions" -}}
{{ include "coxswain.commonOptions" . }}
admin_key_file: /etc/coxswain/admin/{{ include "coxswain.adminKey" (dict "ctx" . "part" "worker") }}
model: {{ .Values.model.name | quote }}
device: {{ include "coxswain.device" . | quote }}
head: {{ include "coxswain.headAddresses" . | quote }}
tp: {{ .Values.worker.tp }}
pp: {{ .Values.worker.pp }}
cache_dir: /cache
http_host: {{ .Values.listen | quote }}
http_port: 7001
comm_port: 7100
kv_port: 7200
{{- if .Values.elasticTp.enabled }}
elastic_tp: true
{{- end }}
{{- if .Values.lora.enabled }}
enable_lora: true
max_loras: {{ .Values.lora.maxLoras }}
max_lora_rank: {{ .Values.lora.maxRank }}
lora_root: {{ .Values.lora.root | quote }}
{{- end }}
{{- end -}}

{{- define "coxswain.gatewayOptions" -}}
{{ include "coxswain.commonOptions" . }}
admin_key_file: /etc/coxswain/admin/{{ include "coxswain.adminKey" (dict "ctx" . "part" "gateway") }}
{{- if .Values.models }}
models: /etc/coxswain/models/models.yaml
{{- else }}
model: {{ .Values.model.name | quote }}
head: {{ include "coxswain.headAddresses" . | quote }}
{{- end }}
cache_dir: /cache
host: {{ .Values.listen | quote }}
port: 8000
admin_host: {{ .Values.listen | quote }}
admin_port: 8001
shutdown_delay: {{ .Values.gateway.shutdownDelay }}
shutdown_timeout: {{ include "coxswain.shutdownTimeout" . }}
{{- if include "coxswain.apiKeysSecret" . }}
api_key_file: /etc/coxswain/api-keys/{{ .Values.gateway.apiKeys.key }}
{{- end }}
{{- with .Values.gateway.tls.existingSecret }}
ssl_certfile: /etc/coxswain/tls/{{ $.Values.gateway.tls.cert }}
ssl_keyfile: /etc/coxswain/tls/{{ $.Values.gateway.tls.key }}
{{- end }}
{{- if .Values.gateway.state.enabled }}
state_dir: /state
{{- end }}
{{- if and (not .Values.models) (include "coxswain.scalesToZero" .) (kindIs "invalid" .Values.gateway.config.queue_timeout) }}
queue_timeout: {{ include "coxswain.startSeconds" . }}
{{- end }}
{{- end -}}

{{/* Text of a part's configuration file. (dict "ctx" $ "part" "head") */}}
{{- define "coxswain.configFile" -}}
{{- $own := include (printf "coxswain.%sOptions" .part) .ctx | fromYaml -}}
{{- $theirs := (get .ctx.Values .part).config -}}
{{- toYaml (mergeOverwrite (deepCopy $theirs) $own) -}}
{{- end -}}

{{/* Seconds that a stopping gateway waits for its streams. The default is an hour, because another gateway already takes new requests.
With a folder of its own it is short, because the next gateway waits for the folder. */}}
{{- define "coxswain.shutdownTimeout" -}}
{{- $t := .Values.gateway.config.shutdown_timeout -}}
{{- kindIs "invalid" $t | ternary (.Values.gateway.state.enabled | ternary 30 3600) $t -}}
{{- end -}}

{{- define "coxswain.gatewayGrace" -}}
{{- add (int .Values.gateway.shutdownDelay) (include "coxswain.shutdownTimeout" . | float64 | ceil | int) 15 -}}
{{- end -}}
