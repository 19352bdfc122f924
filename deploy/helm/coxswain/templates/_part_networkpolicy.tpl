{{/* Ports of model downloads, separated by commas: 443, and the ports in the configured addresses. */}}
{{- define "coxswain.fetchPorts" -}}
{{- $ports := list "443" -}}
{{- $named := list .Values.model.name .Values.modelHf.endpoint .Values.modelS3.endpoint -}}
{{- range .Values.model.pullEnv -}}{{- with .value -}}{{- $named = append $named . -}}{{- end -}}{{- end -}}
{{- range $named -}}
{{- with regexFind "^https?://[^/?#]+" . -}}
{{- $own := regexFind ":[0-9]+$" . | trimPrefix ":" -}}
{{- $ports = append $ports (default (hasPrefix "https:" . | ternary "443" "80") $own) -}}
{{- end -}}
{{- end -}}
{{- $ports | uniq | join "," -}}
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
{{- /* A download may go anywhere except to the addresses where clouds give out a node's credentials, which pods must not get. With some
networks an ipBlock does not cover the cluster's own pods. */}}
{{- $anywhere := list (dict "ipBlock" (dict "cidr" "0.0.0.0/0" "except" (list "169.254.0.0/16" "168.63.129.16/32" "100.100.100.200/32"))) }}
{{- $anywhere = append $anywhere (dict "ipBlock" (dict "cidr" "::/0" "except" (list "fe80::/10" "fd00:ec2::254/128" "fd20:ce::254/128"))) }}
{{- $anywhere = append $anywhere (dict "namespaceSelector" dict) }}
{{- $fetch := list }}
{{- if include "coxswain.pulls" . }}
{{- $ports := list }}
{{- range include "coxswain.fetchPorts" . | splitList "," }}{{ $ports = append $ports (dict "port" (int .) "protocol" "TCP") }}{{ end }}
{{- $fetch = list (dict "to" $anywhere "ports" $ports) }}
{{- end }}
{{- $tcp := dict }}
{{- range list 6379 7000 7001 8000 8001 8265 }}
{{- $_ := set $tcp (toString .) (dict "port" . "protocol" "TCP") }}
{{- end }}
{{- /* All models of a release share one Redis. */}}
{{- if .SharedRedis }}
{{- $_ := set $peer "redis" (dict "podSelector" (dict "matchLabels" (dict "app.kubernetes.io/name" .SharedRedis "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/component" "redis"))) }}
{{- end }}
{{- $asks := dict "podSelector" (dict "matchLabels" (dict "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/part-of" "coxswain") "matchExpressions" (list (dict "key" "app.kubernetes.io/component" "operator" "In" "values" (list "head" "gateway")))) }}
{{- $redis := list }}
{{- if or .Values.redis.enabled .SharedRedis }}{{ $redis = list (dict "to" (list $peer.redis) "ports" (list (get $tcp "6379"))) }}{{ end }}
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
{{- range $part, $port := dict "gateway" "8001" "head" "8265" "worker" "7001" }}
{{- if $n.metricsFrom }}
{{- $ports := list (get $tcp $port) }}
{{- if and (eq $part "worker") (gt (int $.Values.worker.ranks) 1) }}
{{- $ports = append $ports (dict "port" 7002 "endPort" (add 7001 (int $.Values.worker.ranks)) "protocol" "TCP") }}
{{- end }}
{{- $_ := set $in $part (append (get $in $part) (dict "from" $n.metricsFrom "ports" $ports)) }}
{{- end }}
{{- end }}
{{- $head := dict "to" (list $peer.head) "ports" (list (get $tcp "7000")) }}
{{- $_ := set $out "gateway" (concat (list $dns $head) $redis $fetch $n.extraEgress) }}
{{- $_ := set $out "worker" (concat (list $dns $head (dict "to" (list $peer.worker))) $fetch $n.extraEgress) }}
{{- $_ := set $out "head" (concat (list $dns) $redis $other $n.extraEgress) }}
{{- $parts := list "head" "worker" "gateway" }}
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
  ingress:
    {{- toYaml (get $in .) | nindent 4 }}
  egress:
    {{- toYaml (get $out .) | nindent 4 }}
{{- end }}
{{- end }}
{{ end -}}
