{{- define "coxswain.part.secrets" -}}
{{- $f := include "coxswain.fullname" . -}}
{{- $labels := include "coxswain.labels" (dict "ctx" $ "part" "keys") -}}
{{- if not .Values.keys.existingSecret }}
apiVersion: v1
kind: Secret
metadata:
  name: "{{ include "coxswain.keysSecret" . }}"
  labels:
    {{- $labels | nindent 4 }}
type: Opaque
data:
  {{- include "coxswain.keysData" (dict "found" (lookup "v1" "Secret" .Release.Namespace (include "coxswain.keysSecret" .))) | nindent 2 }}
{{- end }}
{{- if not .Values.admin.existingSecret }}
---
apiVersion: v1
kind: Secret
metadata:
  name: "{{ include "coxswain.adminSecret" . }}"
  labels:
    {{- $labels | nindent 4 }}
type: Opaque
data:
  {{- include "coxswain.randomData" (dict "found" (lookup "v1" "Secret" .Release.Namespace (include "coxswain.adminSecret" .)) "names" (splitList " " (include "coxswain.adminNames" .))) | nindent 2 }}
{{- end }}
{{- if and .Values.gateway.apiKeys.generate (not .Values.gateway.apiKeys.existingSecret) }}
---
apiVersion: v1
kind: Secret
metadata:
  name: "{{ include "coxswain.apiKeysSecret" . }}"
  labels:
    {{- $labels | nindent 4 }}
  annotations:
    helm.sh/resource-policy: keep # clients have this key, so a release that is installed again gets the same one
type: Opaque
data:
  {{- include "coxswain.randomData" (dict "found" (lookup "v1" "Secret" .Release.Namespace (include "coxswain.apiKeysSecret" .)) "names" (list .Values.gateway.apiKeys.key)) | nindent 2 }}
{{- end }}
{{ end -}}
