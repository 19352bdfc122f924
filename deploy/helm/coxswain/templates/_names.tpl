{{/* Names, labels and images. A label has at most 63 characters and must hold a StatefulSet's name, "-" and the ten letters of its
revision. With "-worker" appended, 45 remain for a full name. A longer name is cut and gets a hash, so that different names stay
different. A label's value must end in a letter or digit. (dict "name" "..." "max" 45) */}}
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

{{/* Name of the object that makes the workers' pods. A LeaderWorkerSet makes one StatefulSet for each group, named NAME-GROUP. With
"-worker" and a number of five digits appended, 39 characters remain for a full name. */}}
{{- define "coxswain.workerName" -}}
{{- $max := eq .Values.worker.kind "LeaderWorkerSet" | ternary 39 45 -}}
{{- include "coxswain.cut" (dict "name" (include "coxswain.fullname" .) "max" $max) }}-worker
{{- end -}}

{{/* Labels that select the pods of a release and a part. No upgrade may change them. (dict "ctx" $ "part" "worker") */}}
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

{{/* Image of a part. Workers may have their own image; on GPUs they have the one with CUDA. A chart of packaging/push names the digests of its
images; they apply until a value names another image. (dict "ctx" $ "part" "worker") */}}
{{- define "coxswain.image" -}}
{{- $v := .ctx.Values -}}
{{- $i := mergeOverwrite (deepCopy $v.image) (eq .part "worker" | ternary (omit $v.worker.image "pullPolicy") dict) -}}
{{- $cuda := and (eq .part "worker") (eq (include "coxswain.device" .ctx) "cuda") (not $v.worker.image.tag) (not $v.worker.image.digest) -}}
{{- $tag := default .ctx.Chart.AppVersion $i.tag -}}
{{- /* with a tag for workers only, the digest of the common image does not apply */ -}}
{{- if and (eq .part "worker") $v.worker.image.tag (not $v.worker.image.digest) -}}{{- $_ := set $i "digest" "" -}}{{- end -}}
{{- if $cuda -}}{{- $tag = printf "%s-cuda" $tag -}}{{- end -}}
{{- $at := printf "%s%s" (empty $i.registry | ternary "" (printf "%s/" (trimSuffix "/" $i.registry))) $i.repository -}}
{{- /* the digest names the image without CUDA, so it does not apply to the one with CUDA */ -}}
{{- $pushed := index (default dict .ctx.Chart.Annotations) (printf "coxswain/image%s" (ternary "-cuda" "" $cuda)) | default "" -}}
{{- if and $i.digest (not $cuda) -}}{{ printf "%s@%s" $at $i.digest }}
{{- else if and (hasPrefix (printf "%s@" $at) $pushed) (not $i.tag) -}}{{ $pushed }}
{{- else -}}{{ printf "%s:%s" $at $tag }}{{- end -}}
{{- end -}}

{{- define "coxswain.keysSecret" -}}
{{- default (printf "%s-keys" (include "coxswain.fullname" .)) .Values.keys.existingSecret -}}
{{- end -}}
{{- define "coxswain.adminSecret" -}}
{{- default (printf "%s-admin" (include "coxswain.fullname" .)) .Values.admin.existingSecret -}}
{{- end -}}
{{/* Name of the admin key that a part gets. The head's key controls the cluster, and no other pod has it. With --reuse-values a newer
chart gets values without metricsKey. (dict "ctx" $ "part" "worker") */}}
{{- define "coxswain.adminKey" -}}
{{- $a := .ctx.Values.admin -}}
{{- eq .part "head" | ternary $a.key (default "metrics-key" $a.metricsKey) -}}
{{- end -}}

{{/* Secret with the gateways' API keys; empty when authentication is off. */}}
{{- define "coxswain.apiKeysSecret" -}}
{{- if .Values.gateway.apiKeys.existingSecret -}}
{{- .Values.gateway.apiKeys.existingSecret -}}
{{- else if .Values.gateway.apiKeys.generate -}}
{{- printf "%s-api-keys" (include "coxswain.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* "true" on OpenShift, which assigns the user and group of pods, otherwise "". */}}
{{- define "coxswain.openshift" -}}
{{- $e := toString .Values.openshift.enabled -}}
{{- if or (eq $e "true") (and (eq $e "auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) -}}true{{- end -}}
{{- end -}}
