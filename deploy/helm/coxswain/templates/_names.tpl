{{/* Names, labels and images. A StatefulSet's name and "-" and its revision's ten letters have to fit into a label of 63:
with "-worker" behind it a full name has 45. A longer one is cut and keeps a hash, so that two stay two, and what is a label's
value ends in a letter or digit. (dict "name" "..." "max" 45) */}}
{{- define "coxswain.cut" -}}
{{- $name := .name -}}
{{- if gt (len $name) (int .max) -}}
{{- $name = printf "%s-%s" ($name | trunc (sub (int .max) 9 | int) | regexFind ".*[A-Za-z0-9]") (sha256sum $name | trunc 8) -}}
{{- end -}}
{{- $name | regexFind ".*[A-Za-z0-9]" -}}
{{- end -}}

{{- define "coxswain.name" -}}
{{- include "coxswain.cut" (dict "name" (default .Chart.Name .Values.nameOverride) "max" 45) -}}
{{- end -}}

{{- define "coxswain.fullname" -}}
{{- $name := include "coxswain.name" . -}}
{{- $full := .Release.Name -}}
{{- if .Values.fullnameOverride -}}
{{- $full = .Values.fullnameOverride -}}
{{- else if not (contains $name .Release.Name) -}}
{{- $full = printf "%s-%s" .Release.Name $name -}}
{{- end -}}
{{- /* a Service's name has no dots and begins with a letter */ -}}
{{- $full = $full | replace "." "-" -}}
{{- if regexMatch "^[0-9]" $full -}}{{- $full = printf "c%s" $full -}}{{- end -}}
{{- include "coxswain.cut" (dict "name" $full "max" 45) -}}
{{- end -}}

{{/* Of what makes the workers' pods. A LeaderWorkerSet makes a StatefulSet of each group, called NAME-GROUP: with "-worker" and five
digits behind it a full name has 39. */}}
{{- define "coxswain.workerName" -}}
{{- $max := eq .Values.worker.kind "LeaderWorkerSet" | ternary 39 45 -}}
{{- include "coxswain.cut" (dict "name" (include "coxswain.fullname" .) "max" $max) }}-worker
{{- end -}}

{{/* What no upgrade may change: who is of this release and which part of it. (dict "ctx" $ "part" "worker") */}}
{{- define "coxswain.selector" -}}
app.kubernetes.io/name: "{{ include "coxswain.name" .ctx }}"
app.kubernetes.io/instance: "{{ .ctx.Release.Name }}"
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "coxswain.labels" -}}
{{ include "coxswain.selector" . }}
app.kubernetes.io/version: {{ .ctx.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: coxswain
app.kubernetes.io/managed-by: "{{ .ctx.Release.Service }}"
helm.sh/chart: "{{ printf "%s-%s" .ctx.Chart.Name .ctx.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}"
{{- end -}}

{{- define "coxswain.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "coxswain.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* (dict "ctx" $ "part" "worker"): workers may have an image of their own, and on GPUs have the one with CUDA. */}}
{{- define "coxswain.image" -}}
{{- $v := .ctx.Values -}}
{{- $i := mergeOverwrite (deepCopy $v.image) (eq .part "worker" | ternary (omit $v.worker.image "pullPolicy") dict) -}}
{{- $cuda := and (eq .part "worker") (eq (include "coxswain.device" .ctx) "cuda") (not $v.worker.image.tag) (not $v.worker.image.digest) -}}
{{- $tag := default .ctx.Chart.AppVersion $i.tag -}}
{{- /* a tag of workers alone is not what the digest of all programs' image names */ -}}
{{- if and (eq .part "worker") $v.worker.image.tag (not $v.worker.image.digest) -}}{{- $_ := set $i "digest" "" -}}{{- end -}}
{{- if $cuda -}}{{- $tag = printf "%s-cuda" $tag -}}{{- end -}}
{{- $at := printf "%s%s" (empty $i.registry | ternary "" (printf "%s/" (trimSuffix "/" $i.registry))) $i.repository -}}
{{- /* a digest is of one image: the plain one's is not that of the one with CUDA */ -}}
{{- if and $i.digest (not $cuda) -}}{{ printf "%s@%s" $at $i.digest }}{{- else -}}{{ printf "%s:%s" $at $tag }}{{- end -}}
{{- end -}}

{{- define "coxswain.keysSecret" -}}
{{- default (printf "%s-keys" (include "coxswain.fullname" .)) .Values.keys.existingSecret -}}
{{- end -}}
{{- define "coxswain.adminSecret" -}}
{{- default (printf "%s-admin" (include "coxswain.fullname" .)) .Values.admin.existingSecret -}}
{{- end -}}
{{/* Of the keys in it the one that a part takes. The head's is the cluster's: no other pod has it. (dict "ctx" $ "part" "worker")
By --reuse-values a newer chart is given values without metricsKey. */}}
{{- define "coxswain.adminKey" -}}
{{- $a := .ctx.Values.admin -}}
{{- eq .part "head" | ternary $a.key (default "metrics-key" $a.metricsKey) -}}
{{- end -}}

{{/* The Secret of the gateways' API keys; empty: there are none. */}}
{{- define "coxswain.apiKeysSecret" -}}
{{- if .Values.gateway.apiKeys.existingSecret -}}
{{- .Values.gateway.apiKeys.existingSecret -}}
{{- else if .Values.gateway.apiKeys.generate -}}
{{- printf "%s-api-keys" (include "coxswain.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* "true" or "": whether this is OpenShift, which gives pods a user and a group itself. */}}
{{- define "coxswain.openshift" -}}
{{- $e := toString .Values.openshift.enabled -}}
{{- if or (eq $e "true") (and (eq $e "auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) -}}true{{- end -}}
{{- end -}}
