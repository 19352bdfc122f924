{{/* Whose the number of pods is: the values', or that of whoever scales (an autoscaler, kubectl scale). */}}

{{/* Pods of workers that the values say; empty: whoever scales says how many. */}}
{{- define "coxswain.workerReplicas" -}}
{{- if not (or .Values.autoscaling.enabled (kindIs "invalid" .Values.worker.replicas)) -}}{{ .Values.worker.replicas }}{{- end -}}
{{- end -}}

{{- define "coxswain.gatewayReplicas" -}}
{{- if not (or .Values.gateway.autoscaling.enabled (kindIs "invalid" .Values.gateway.replicas)) -}}{{ .Values.gateway.replicas }}{{- end -}}
{{- end -}}

{{/* Of what somebody else scales, a number here is wrong as soon as that one says another: Helm 4 applies at the server, where
it is a conflict. None is wrong, too, while the number is Helm's alone: what Helm says no longer is taken away, and becomes 1.
So there is one, that of the cluster, only in the second case; and for Helm 3, which takes away whatever it said once, always.
(dict "said" "2" "found" (lookup ...)) */}}
{{- define "coxswain.replicas" -}}
{{- if .said -}}
replicas: {{ .said }}
{{- else if .found -}}
{{- $isApplied := false -}}
{{- $owners := list -}}
{{- range .found.metadata.managedFields -}}
{{- $isHelm := and (eq .operation "Apply") (hasPrefix "helm" .manager) -}}
{{- if $isHelm -}}{{- $isApplied = true -}}{{- end -}}
{{- if hasKey (dig "fieldsV1" "f:spec" dict .) "f:replicas" -}}{{- $owners = append $owners ($isHelm | ternary "helm" "other") -}}{{- end -}}
{{- end -}}
{{- if or (not $isApplied) (eq (join "," $owners) "helm") -}}
replicas: {{ .found.spec.replicas }}
{{- end -}}
{{- end -}}
{{- end -}}
