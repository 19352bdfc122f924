{{/* Settings that all pods share. (dict "ctx" $ "part" "head"|"worker"|"gateway"|...) */}}

{{/* The labels have no version: a newer chart that does not change a pod must not replace it. */}}
{{- define "coxswain.podMetadata" -}}
{{- $own := default dict (get .ctx.Values .part) -}}
labels:
  {{- include "coxswain.selector" . | nindent 2 }}
  app.kubernetes.io/part-of: coxswain
  {{- if and (eq .part "worker") .ctx.Pool }}
  coxswain.io/pool: {{ .ctx.Pool }}
  {{- end }}
  {{- if ne .part "prefetch" }}
  {{- with include "coxswain.cacheLabel" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- end }}
  {{- with $own.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $config := "" -}}
{{- if has .part (list "head" "worker" "gateway") -}}
{{- $config = include "coxswain.configFile" . | sha256sum -}}
{{- end }}
{{- $redis := has .part (list "head" "gateway" "redis") | ternary (include "coxswain.redisVersion" .ctx) "" }}
{{- if or $config $redis $own.podAnnotations }}
annotations:
  {{- with $config }}
  checksum/config: {{ . }}
  {{- end }}
  {{- with $redis }}
  checksum/redis: {{ . | quote }}
  {{- end }}
  {{- with $own.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The image sets user 65532 and group 0; OpenShift assigns a user and a group itself. The profile of seccompProfile allows the system
calls of Coxswain's programs only, so a pod with another program (ForeignProgram in the context) does not use it. */}}
{{- define "coxswain.podSecurity" -}}
runAsNonRoot: true
{{- $s := default dict .Values.seccompProfile }}
seccompProfile:
  {{- if and (eq (default "" $s.type) "Localhost") (not .ForeignProgram) }}
  type: Localhost
  localhostProfile: {{ $s.localhostProfile | quote }}
  {{- else }}
  type: RuntimeDefault
  {{- end }}
{{- if not (include "coxswain.openshift" .) }}
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
{{- end }}
{{- end -}}

{{/* "true" when the name of the profile is missing. */}}
{{- define "coxswain.seccompMissing" -}}
{{- $s := default dict .Values.seccompProfile -}}
{{- if and (eq (default "" $s.type) "Localhost") (not $s.localhostProfile) -}}true{{- end -}}
{{- end -}}

{{- define "coxswain.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* User and placement of a pod. */}}
{{- define "coxswain.podCommon" -}}
{{- $v := .ctx.Values -}}
{{- $own := default dict (get $v .part) -}}
serviceAccountName: "{{ include "coxswain.serviceAccount" .ctx }}"
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $v.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: "{{ . }}"
  {{- end }}
{{- end }}
securityContext:
  {{- include "coxswain.podSecurity" .ctx | nindent 2 }}
{{- with $own.priorityClassName }}
priorityClassName: "{{ . }}"
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "coxswain.tolerations" . }}
{{ . }}
{{- end }}
{{- end -}}

{{/* One probe. (dict "at" (dict "path" "/livez" "port" "http" "scheme" "HTTP") "probe" .Values.head.probes) */}}
{{- define "coxswain.probe" -}}
httpGet:
  {{- toYaml .at | nindent 2 }}
periodSeconds: {{ .probe.periodSeconds }}
timeoutSeconds: {{ .probe.timeoutSeconds }}
failureThreshold: {{ .probe.failureThreshold }}
{{- end -}}

{{/* Volume with only the keys that the role needs. The head also needs the other roles' public keys, which `authorized` names. */}}
{{- define "coxswain.keysVolume" -}}
{{- $items := eq .part "head" | ternary (list "head.key" "head.pub" "authorized" "worker.pub" "gateway.pub") (list (printf "%s.key" .part) (printf "%s.pub" .part) "head.pub") -}}
- name: keys
  secret:
    secretName: "{{ include "coxswain.keysSecret" .ctx }}"
    defaultMode: 0440
    items:
      {{- range $items }}
      - key: "{{ . }}"
        path: "{{ . }}"
      {{- end }}
- name: admin
  secret:
    secretName: "{{ include "coxswain.adminSecret" .ctx }}"
    defaultMode: 0440
    items:
      - key: "{{ include "coxswain.adminKey" . }}"
        path: "{{ include "coxswain.adminKey" . }}"
- name: config
  configMap:
    name: "{{ include "coxswain.fullname" .ctx }}-{{ .part }}"
- name: tmp
  emptyDir:
    sizeLimit: {{ .ctx.Values.tmpSize }}
{{- end -}}

{{- define "coxswain.keysMounts" -}}
- name: config
  mountPath: /etc/coxswain/config
  readOnly: true
- name: keys
  mountPath: /etc/coxswain/keys
  readOnly: true
- name: admin
  mountPath: /etc/coxswain/admin
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- end -}}
