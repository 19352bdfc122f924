{{- define "coxswain.part.storage" -}}
{{- $f := include "coxswain.fullname" . -}}
{{- $c := .Values.cache -}}
{{- if and (eq $c.kind "pvc") (not $c.existingClaim) }}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ include "coxswain.cacheClaim" . }}
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" "cache") | nindent 4 }}
  {{- if $c.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
spec:
  accessModes: [{{ $c.accessMode }}]
  {{- with $c.storageClass }}
  storageClassName: {{ . }}
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
  name: {{ $f }}-state
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" "state") | nindent 4 }}
spec:
  accessModes: [ReadWriteOnce]
  {{- with $s.storageClass }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests:
      storage: {{ $s.size }}
{{- end }}
{{- if $c.prefetch.enabled }}
{{- $me := dict "ctx" $ "part" "prefetch" }}
---
# Fills the claim once; pods wait for it in their own `cox pull`. A Job cannot be changed: another model is another Job.
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $f }}-prefetch-{{ printf "%s %s" .Values.model.name (include "coxswain.image" $me) | sha256sum | trunc 8 }}
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
spec:
  backoffLimit: 10
  template:
    metadata:
      {{- include "coxswain.podMetadata" $me | nindent 6 }}
    spec:
      {{- include "coxswain.podCommon" $me | nindent 6 }}
      restartPolicy: OnFailure
      containers:
        {{- include "coxswain.pullContainer" $me | nindent 8 }}
      volumes:
        {{- include "coxswain.cacheVolume" . | nindent 8 }}
        - name: tmp
          emptyDir:
            sizeLimit: {{ .Values.tmpSize }}
{{- end }}
{{ end -}}
