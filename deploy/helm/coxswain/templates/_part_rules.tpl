{{- /* Adapts the rules of deploy/grafana (rules/coxswain.rules.yml is a copy) to this release: its pods, its name, its values. */}}
{{- define "coxswain.part.rules" -}}
{{- if .Values.metrics.rules }}
{{- $f := include "coxswain.fullname" . -}}
{{- $text := .Files.Get "rules/coxswain.rules.yml" }}
{{- /* With several models, the release has the rules of the gateways and each model those of its head. */}}
{{- $without := list }}
{{- $foreign := "none" }}
{{- if .Gateways }}{{ $foreign = "gateway" }}{{ else if .Values.models }}{{ $foreign = "head" }}{{ end }}
{{- range $part := list "head" "gateway" }}
{{- $pods := printf "namespace=%q, pod=~%q" $.Release.Namespace (printf "%s-%s-.*" $f $part) }}
{{- $text = $text | replace (printf "job=\"coxswain-%s\"" $part) $pods }}
{{- end }}
{{- $text = $text | replace "by (instance)" "by (pod)" | replace "$labels.instance" "$labels.pod" | replace "of Coxswain" (printf "of %s" $f) }}
{{- $text = $text | replace "runbook_url: docs/how-to/runbook.md" (printf "runbook_url: %s" .Values.metrics.runbook) }}
{{- if not .Values.head.standby }}{{ $without = append $without "CoxswainNoStandby" }}{{ end }}
{{- if not .Values.gateway.tls.existingSecret }}{{ $without = append $without "CoxswainCertificateEnds" }}{{ end }}
{{- $bounds := dict "CoxswainFirstTokenLate" .Values.metrics.firstTokenSeconds "CoxswainWorkersLost" (mul 2 (include "coxswain.world" . | int)) }}
{{- $labels := dict "namespace" .Release.Namespace "release" .Release.Name "model_release" $f }}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: "{{ $f }}{{ .Values.models | empty | ternary "" "-gateway" }}"
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" "rules") | nindent 4 }}
    {{- with .Values.metrics.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  groups:
    {{- range (fromYaml $text).groups }}
    - name: "{{ $f }}"
      rules:
        {{- range .rules }}
        {{- if not (or (has .alert $without) (contains (printf "%s-%s-" $f $foreign) .expr)) }}
        {{- if hasKey $bounds (.alert | default "") }}
        {{- $_ := set . "expr" (regexReplaceAll "> [0-9.]+$" .expr (printf "> %v" (index $bounds .alert))) }}
        {{- end }}
        {{- $_ := set . "labels" (merge (dict) (.labels | default dict) $labels) }}
        - {{- toYaml . | nindent 10 }}
        {{- end }}
        {{- end }}
    {{- end }}
{{- end }}
{{ end -}}
