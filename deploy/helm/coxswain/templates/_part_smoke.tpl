{{- define "coxswain.part.smoke" -}}
{{- if .Values.tests.enabled }}
{{- $f := include "coxswain.fullname" . -}}
{{- $me := dict "ctx" $ "part" "test" -}}
{{- $tls := .Values.gateway.tls.existingSecret | empty | not -}}
{{- /* Since 3.18 Helm prints the pod's output, so the pod need not stay: uninstalling a release does not remove a hook's pod. */}}
{{- $isPrinted := semverCompare ">=3.18.0-0" .Capabilities.HelmVersion.Version -}}
{{- $authority := default .Values.gateway.tls.cert .Values.gateway.tls.ca -}}
# `helm test`: asks for health, the list of models and a completion, again and again until --timeout.
apiVersion: v1
kind: Pod
metadata:
  name: "{{ $f }}-smoke"
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
  annotations:
    helm.sh/hook: test
    {{- if $isPrinted }}
    helm.sh/hook-output-log-policy: hook-succeeded,hook-failed
    {{- end }}
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded{{ $isPrinted | ternary ",hook-failed" "" }}
spec:
  {{- include "coxswain.podCommon" $me | nindent 2 }}
  restartPolicy: Never
  containers:
    - name: smoke
      image: {{ include "coxswain.image" $me }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - smoke
        - --url
        - {{ if $tls }}https://{{ $f }}.{{ .Release.Namespace }}.svc{{ else }}http://{{ $f }}{{ end }}:{{ .Values.service.port }}
        - --timeout
        - {{ .Values.tests.timeout | quote }}
        {{- if $tls }}
        - --cacert
        - /etc/coxswain/tls/{{ $authority }}
        {{- end }}
      env:
        - name: HOME
          value: /tmp
        {{- $secret := default (include "coxswain.apiKeysSecret" .) .Values.tests.existingSecret }}
        {{- with $secret }}
        - name: COX_API_KEY
          valueFrom:
            secretKeyRef:
              name: "{{ . }}"
              key: "{{ default $.Values.gateway.apiKeys.key $.Values.tests.key }}"
        {{- end }}
      securityContext:
        {{- include "coxswain.containerSecurity" . | nindent 8 }}
      resources:
        {{- toYaml .Values.tests.resources | nindent 8 }}
      volumeMounts:
        - name: tmp
          mountPath: /tmp
        {{- if $tls }}
        - name: tls
          mountPath: /etc/coxswain/tls
          readOnly: true
        {{- end }}
  volumes:
    {{- if $tls }}
    - name: tls
      secret:
        secretName: "{{ .Values.gateway.tls.existingSecret }}"
        defaultMode: 0440
        items:
          - key: "{{ $authority }}"
            path: "{{ $authority }}"
    {{- end }}
    - name: tmp
      emptyDir:
        sizeLimit: 16Mi
{{- end }}
{{ end -}}
