{{- define "coxswain.part.storage" -}}
{{- $f := include "coxswain.fullname" . -}}
{{- $c := .Values.cache -}}
{{- if and (eq $c.kind "pvc") (not $c.existingClaim) (or (include "coxswain.pulls" .) .Values.models) }}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: "{{ include "coxswain.cacheClaim" . }}"
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" "cache") | nindent 4 }}
  {{- if $c.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
spec:
  accessModes: [{{ $c.accessMode }}]
  {{- with $c.storageClass }}
  storageClassName: "{{ . }}"
  {{- end }}
  resources:
    requests:
      storage: {{ $c.size }}
{{- end }}
{{- $s := .Values.gateway.state -}}
{{- if and $s.enabled (not $s.existingClaim) }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: "{{ $f }}-state"
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" "state") | nindent 4 }}
spec:
  accessModes: [ReadWriteOnce]
  {{- with $s.storageClass }}
  storageClassName: "{{ . }}"
  {{- end }}
  resources:
    requests:
      storage: {{ $s.size }}
{{- end }}
{{- if include "coxswain.prefetches" . }}
{{- $me := dict "ctx" $ "part" "prefetch" }}
{{- $spec := include "coxswain.prefetchSpec" $me }}
---
# Downloads the model to the claim once; other pods wait for it in their own `cox pull`. A Job cannot be changed, so another Job has another name.
apiVersion: batch/v1
kind: Job
metadata:
  name: "{{ $f }}-prefetch-{{ sha256sum $spec | trunc 8 }}"
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
spec:
  {{- $spec | nindent 2 }}
{{- end }}
{{ end -}}

{{/* "true" when a Job downloads the model. */}}
{{- define "coxswain.prefetches" -}}
{{- $c := .Values.cache -}}
{{- if and (include "coxswain.isModel" .) (eq $c.kind "pvc") $c.prefetch.enabled (include "coxswain.pulls" .) -}}true{{- end -}}
{{- end -}}

{{/* Each attempt has its own pod, so that the log of a failed one can still be read. */}}
{{- define "coxswain.prefetchSpec" -}}
backoffLimit: 6
podFailurePolicy:
  rules:
    # cox pull's 2: trying again is of no use, a name, a token or the model has to be another one
    - action: FailJob
      onExitCodes: {containerName: pull, operator: In, values: [2]}
      onPodConditions: [] # 1.28 wants it named
    - action: Ignore # its node was drained
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
template:
  metadata:
    {{- include "coxswain.podMetadata" . | nindent 4 }}
  spec:
    {{- include "coxswain.podCommon" . | nindent 4 }}
    {{- with include "coxswain.affinity" (dict "ctx" .ctx "part" .part "base" dict) }}
    {{- . | nindent 4 }}
    {{- end }}
    restartPolicy: Never
    containers:
      {{- include "coxswain.pullContainer" . | nindent 6 }}
    volumes:
      {{- include "coxswain.cacheVolume" .ctx | nindent 6 }}
      - name: tmp
        emptyDir:
          sizeLimit: {{ .ctx.Values.tmpSize }}
{{- end -}}
