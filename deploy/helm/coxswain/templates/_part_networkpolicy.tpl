{{/* Ports of model downloads, separated by commas: 443, and the ports in the configured addresses. */}}
{{- define "coxswain.fetchPorts" -}}
{{- $ports := list "443" -}}
{{- $named := list .Values.model.name .Values.modelHf.endpoint .Values.modelS3.endpoint -}}
{{- range .Values.model.pullEnv -}}{{- with .value -}}{{- $named = append $named . -}}{{- end -}}{{- end -}}
{{- range $named -}}
{{- with include "coxswain.portOf" . -}}{{- $ports = append $ports . -}}{{- end -}}
{{- end -}}
{{- $ports | uniq | join "," -}}
{{- end -}}

{{/* Ports of a rule, from numbers that are separated by commas. */}}
{{- define "coxswain.tcpPorts" -}}
{{- range splitList "," . }}
- {port: {{ . }}, protocol: TCP}
{{- end }}
{{- end -}}

{{/* "true" when pods fetch files of a model: the model itself, or the small one that proposes draft tokens. */}}
{{- define "coxswain.fetches" -}}
{{- $c := .Values.worker.config -}}
{{- $draft := default "" $c.spec_model -}}
{{- $hasDraft := or (contains "\"model\"" (default "" $c.speculative_config)) (and $draft (not (hasPrefix "/" $draft)) (not (hasPrefix "file:" $draft))) -}}
{{- if or (include "coxswain.pulls" .) $hasDraft -}}true{{- end -}}
{{- end -}}

{{/* Port of an HTTP address; empty for anything else. */}}
{{- define "coxswain.portOf" -}}
{{- with regexFind "^https?://[^/?#]+" . -}}
{{- default (hasPrefix "https:" . | ternary "443" "80") (regexFind ":[0-9]+$" . | trimPrefix ":") -}}
{{- end -}}
{{- end -}}

{{/* Ports of a Redis that the release does not run, separated by commas: those of the URLs in the values, a Secret and the pods'
environment. Where a URL is not known at this time, the port is Redis's own. */}}
{{- define "coxswain.redisPorts" -}}
{{- $r := .Values.redis -}}
{{- $urls := list -}}
{{- with $r.url -}}{{- $urls = list . -}}{{- end -}}
{{- if and $r.existingSecret (not $r.enabled) (not .SharedRedis) -}}
{{- $found := default dict (lookup "v1" "Secret" .Release.Namespace $r.existingSecret) -}}
{{- $urls = list (dig "data" $r.key "" $found | b64dec | trim | default "redis:") -}}
{{- end -}}
{{- range concat .Values.head.extraEnv .Values.gateway.extraEnv -}}
{{- if eq .name "COX_REDIS" -}}{{- $urls = append $urls (default "redis:" .value) -}}{{- end -}}
{{- end -}}
{{- $ports := list -}}
{{- range $urls -}}
{{- if hasPrefix "redis" . -}}{{- $ports = append $ports (regexFind ":[0-9]+(/[^@]*)?$" . | regexFind "[0-9]+" | default "6379") -}}{{- end -}}
{{- end -}}
{{- $ports | uniq | join "," -}}
{{- end -}}

{{/* Ports of the gateways' OpenTelemetry collector, separated by commas. */}}
{{- define "coxswain.tracesPorts" -}}
{{- $named := list (default "" .Values.gateway.config.otlp_traces_endpoint) -}}
{{- range .Values.gateway.extraEnv -}}
{{- if and .value (has .name (list "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" "OTEL_EXPORTER_OTLP_ENDPOINT" "COX_OTLP_TRACES_ENDPOINT")) -}}{{- $named = append $named .value -}}{{- end -}}
{{- end -}}
{{- $ports := list -}}
{{- range $named -}}{{- with include "coxswain.portOf" . -}}{{- $ports = append $ports . -}}{{- end -}}{{- end -}}
{{- $ports | uniq | join "," -}}
{{- end -}}

{{/* Parts whose /metrics or admin API something in the cluster reads because of these values, as a list. KEDA reads the head's. */}}
{{- define "coxswain.metricsAsked" -}}
{{- $parts := list -}}
{{- if and .Values.autoscaling.enabled (eq .Values.autoscaling.kind "keda") (not .Values.autoscaling.prometheusUrl) -}}{{- $parts = list "head" -}}{{- end -}}
{{- if or .Values.metrics.serviceMonitor .Values.metrics.podMonitor -}}{{- $parts = list "head" "worker" "gateway" -}}{{- end -}}
{{- toYaml $parts -}}
{{- end -}}

{{- define "coxswain.part.networkpolicy" -}}
{{- if .Values.networkPolicy.enabled }}
{{- $f := include "coxswain.fullname" . -}}
{{- $n := .Values.networkPolicy -}}
{{- /* Pods of each part, as a peer. */}}
{{- $peer := dict }}
{{- range list "head" "worker" "gateway" "redis" "test" }}
{{- $_ := set $peer . (dict "podSelector" (dict "matchLabels" (include "coxswain.selector" (dict "ctx" $ "part" .) | fromYaml))) }}
{{- end }}
{{- $dns := dict "ports" (list (dict "port" 53 "protocol" "UDP") (dict "port" 53 "protocol" "TCP") (dict "port" 5353 "protocol" "UDP") (dict "port" 5353 "protocol" "TCP")) }}
{{- /* What leaves the release may go anywhere except to the addresses where clouds give out a node's credentials, which pods must not get. With some
networks an ipBlock does not cover the cluster's own pods. */}}
{{- $anywhere := list (dict "ipBlock" (dict "cidr" "0.0.0.0/0" "except" (list "169.254.0.0/16" "168.63.129.16/32" "100.100.100.200/32"))) }}
{{- $anywhere = append $anywhere (dict "ipBlock" (dict "cidr" "::/0" "except" (list "fe80::/10" "fd00:ec2::254/128" "fd20:ce::254/128"))) }}
{{- $anywhere = append $anywhere (dict "namespaceSelector" dict) }}
{{- $fetch := list }}
{{- if and (include "coxswain.isModel" .) (include "coxswain.fetches" .) }}
{{- $fetch = list (dict "to" $anywhere "ports" (include "coxswain.tcpPorts" (include "coxswain.fetchPorts" .) | fromYamlArray)) }}
{{- end }}
{{- $tcp := dict }}
{{- range list 6379 7000 7001 8000 8001 8265 }}
{{- $_ := set $tcp (toString .) (dict "port" . "protocol" "TCP") }}
{{- end }}
{{- /* All models of a release share one Redis. */}}
{{- if .SharedRedis }}
{{- $_ := set $peer "redis" (dict "podSelector" (dict "matchLabels" (dict "app.kubernetes.io/name" .SharedRedis "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/component" "redis"))) }}
{{- end }}
{{- /* Gateways of several models reach the heads of all of them, and each model is reached by the release's gateways. */}}
{{- if .Gateways }}
{{- $_ := set $peer "gateway" (dict "podSelector" (dict "matchLabels" (dict "app.kubernetes.io/name" .Gateways "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/component" "gateway"))) }}
{{- end }}
{{- if .Values.models }}
{{- $_ := set $peer "head" (dict "podSelector" (dict "matchLabels" (dict "app.kubernetes.io/part-of" "coxswain" "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/component" "head"))) }}
{{- end }}
{{- $asks := dict "podSelector" (dict "matchLabels" (dict "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/part-of" "coxswain") "matchExpressions" (list (dict "key" "app.kubernetes.io/component" "operator" "In" "values" (list "head" "gateway")))) }}
{{- $redis := list }}
{{- if or .Values.redis.enabled .SharedRedis }}
{{- $redis = list (dict "to" (list $peer.redis) "ports" (list (get $tcp "6379"))) }}
{{- end }}
{{- with include "coxswain.redisPorts" . }}{{ $redis = append $redis (dict "to" $anywhere "ports" (include "coxswain.tcpPorts" . | fromYamlArray)) }}{{ end }}
{{- $traces := list }}
{{- with include "coxswain.tracesPorts" . }}{{ $traces = list (dict "to" $anywhere "ports" (include "coxswain.tcpPorts" . | fromYamlArray)) }}{{ end }}
{{- $in := dict }}
{{- $out := dict }}
{{- $public := dict "ports" (list (get $tcp "8000")) }}
{{- if $n.from }}{{ $_ := set $public "from" (append $n.from $peer.test) }}{{ end }}
{{- $_ := set $in "gateway" (list $public) }}
{{- $_ := set $in "head" (list (dict "from" (list $peer.gateway $peer.worker) "ports" (list (get $tcp "7000")))) }}
{{- /* `cox status` and similar commands go on from the standby head to the serving one. */}}
{{- $other := list }}
{{- if .Values.head.standby }}
{{- $other = list (dict "to" (list $peer.head) "ports" (list (get $tcp "8265"))) }}
{{- $_ := set $in "head" (append $in.head (dict "from" (list $peer.head) "ports" (list (get $tcp "8265")))) }}
{{- end }}
{{- /* Ranks talk at ports that NCCL chooses. */}}
{{- $_ := set $in "worker" (list (dict "from" (list $peer.worker))) }}
{{- $asked := include "coxswain.metricsAsked" . | fromYamlArray }}
{{- range $part, $port := dict "gateway" "8001" "head" "8265" "worker" "7001" }}
{{- /* These ports ask for a key. */}}
{{- $from := $n.metricsFrom }}
{{- if and (not $from) (has $part $asked) }}{{ $from = list (dict "namespaceSelector" dict) }}{{ end }}
{{- if $from }}
{{- $ports := list (get $tcp $port) }}
{{- if and (eq $part "worker") (gt (int $.Values.worker.ranks) 1) }}
{{- $ports = append $ports (dict "port" 7002 "endPort" (add 7001 (int $.Values.worker.ranks)) "protocol" "TCP") }}
{{- end }}
{{- $_ := set $in $part (append (get $in $part) (dict "from" $from "ports" $ports)) }}
{{- end }}
{{- end }}
{{- $head := dict "to" (list $peer.head) "ports" (list (get $tcp "7000")) }}
{{- $_ := set $out "gateway" (concat (list $dns $head) $redis $fetch $traces $n.extraEgress) }}
{{- $_ := set $out "worker" (concat (list $dns $head (dict "to" (list $peer.worker))) $fetch $n.extraEgress) }}
{{- $_ := set $out "head" (concat (list $dns) $redis $other $n.extraEgress) }}
{{- $parts := list }}
{{- if include "coxswain.isModel" . }}{{ $parts = list "head" "worker" }}{{ end }}
{{- if include "coxswain.isRelease" . }}{{ $parts = append $parts "gateway" }}{{ end }}
{{- if .Values.redis.enabled }}
{{- $_ := set $in "redis" (list (dict "from" (list $asks) "ports" (list (get $tcp "6379")))) }}
{{- $_ := set $out "redis" (list) }}
{{- $parts = append $parts "redis" }}
{{- end }}
{{- if include "coxswain.prefetches" . }}
{{- $_ := set $in "prefetch" (list) }}
{{- $_ := set $out "prefetch" (concat (list $dns) $fetch $n.extraEgress) }}
{{- $parts = append $parts "prefetch" }}
{{- end }}
{{- range $parts }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: "{{ $f }}-{{ . }}"
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" .) | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "coxswain.selector" (dict "ctx" $ "part" .) | nindent 6 }}
  policyTypes: [Ingress, Egress]
  # JSON quotes a name such as 12e4567, which some readers of YAML take for a number. The API server does not store an empty list, so Helm 4
  # would change such a policy in each upgrade.
  {{- with get $in . }}
  ingress:
    {{- toPrettyJson . | nindent 4 }}
  {{- end }}
  {{- with get $out . }}
  egress:
    {{- toPrettyJson . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
{{ end -}}
