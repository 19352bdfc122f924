{{/* Owner of the number of pods: the values, or something that scales (an autoscaler, kubectl scale). */}}

{{/* Number of worker pods in the values; empty when something else scales them. */}}
{{- define "coxswain.workerReplicas" -}}
{{- if .Values.worker.pools -}}{{ add .Values.worker.pools.prefill .Values.worker.pools.decode }}
{{- else if not (or .Values.autoscaling.enabled (kindIs "invalid" .Values.worker.replicas)) -}}{{ .Values.worker.replicas }}{{- end -}}
{{- end -}}

{{- define "coxswain.gatewayReplicas" -}}
{{- if not (or .Values.gateway.autoscaling.enabled (kindIs "invalid" .Values.gateway.replicas)) -}}{{ .Values.gateway.replicas }}{{- end -}}
{{- end -}}

{{/* Field `replicas` of an object. If something else scales the object, a number here would be wrong: Helm 4 applies on the server,
where a different number is a conflict. No number would be wrong as well while only Helm owns it: a field that Helm drops is
removed and becomes 1. So the cluster's present number is written only in that second case. For Helm 3, which removes each field
that it set before, it is always written. (dict "said" "2" "found" (lookup ...)) */}}
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
