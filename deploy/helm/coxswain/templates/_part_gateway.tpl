{{- define "coxswain.part.gateway" -}}
{{- $f := include "coxswain.fullname" . -}}
{{- $me := dict "ctx" $ "part" "gateway" -}}
{{- $v := .Values.gateway -}}
{{- $scheme := $v.tls.existingSecret | empty | ternary "HTTP" "HTTPS" -}}
apiVersion: v1
kind: Service
metadata:
  name: "{{ $f }}"
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
  {{- with .Values.service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ .Values.service.type }}
  selector:
    {{- include "coxswain.selector" $me | nindent 4 }}
  ports:
    - name: http
      port: {{ .Values.service.port }}
      targetPort: http
      {{- with .Values.service.nodePort }}
      nodePort: {{ . }}
      {{- end }}
---
# For Prometheus and operators. The public Service offers no admin call, and no /metrics without a key.
apiVersion: v1
kind: Service
metadata:
  name: "{{ $f }}-gateway"
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
    coxswain.io/service: admin
spec:
  clusterIP: None
  selector:
    {{- include "coxswain.selector" $me | nindent 4 }}
  ports:
    - name: admin
      port: 8001
      targetPort: admin
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: "{{ $f }}-gateway"
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
spec:
  {{- with include "coxswain.replicas" (dict "said" (include "coxswain.gatewayReplicas" .) "found" (lookup "apps/v1" "Deployment" .Release.Namespace (printf "%s-gateway" $f))) }}
  {{- . | nindent 2 }}
  {{- end }}
  revisionHistoryLimit: 5
  strategy:
    {{- if $v.state.enabled }}
    type: Recreate # only one gateway at a time may use the folder
    {{- else }}
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
    {{- end }}
  selector:
    matchLabels:
      {{- include "coxswain.selector" $me | nindent 6 }}
  template:
    metadata:
      {{- include "coxswain.podMetadata" $me | nindent 6 }}
    spec:
      {{- include "coxswain.podCommon" $me | nindent 6 }}
      {{- with include "coxswain.affinity" (dict "ctx" $ "part" "gateway" "base" dict) }}
      {{- . | nindent 6 }}
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "coxswain.selector" $me | nindent 14 }}
      # Time until no node sends requests, plus the time for its streams to end, plus a margin.
      terminationGracePeriodSeconds: {{ include "coxswain.gatewayGrace" . }}
      {{- if and (not .Values.models) (include "coxswain.pulls" .) }}
      initContainers:
        {{- include "coxswain.pullContainer" $me | nindent 8 }}
      {{- end }}
      containers:
        - name: gateway
          image: {{ include "coxswain.image" $me }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          args: [gateway, --config, /etc/coxswain/config/gateway.yaml]
          env:
            - name: COX_ADMIN_KEY_FILE # key of the gateway's admin calls
              value: /etc/coxswain/admin/{{ include "coxswain.adminKey" $me }}
            {{- with include "coxswain.redisEnv" . }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- with $v.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - name: http
              containerPort: 8000
            - name: admin
              containerPort: 8001
          # The gateway opens the model's tokenizer before it listens; the first time takes longer.
          startupProbe:
            {{- include "coxswain.probe" (dict "at" (dict "path" "/livez" "port" "admin" "scheme" $scheme) "probe" $v.probes.startup) | nindent 12 }}
          livenessProbe:
            {{- include "coxswain.probe" (dict "at" (dict "path" "/livez" "port" "admin" "scheme" $scheme) "probe" $v.probes.liveness) | nindent 12 }}
          # Ready when it accepts requests, even without workers: it then answers 503 with a Retry-After.
          readinessProbe:
            {{- include "coxswain.probe" (dict "at" (dict "path" $v.probes.readiness.path "port" "admin" "scheme" $scheme) "probe" $v.probes.readiness) | nindent 12 }}
          securityContext:
            {{- include "coxswain.containerSecurity" . | nindent 12 }}
          resources:
            {{- toYaml $v.resources | nindent 12 }}
          volumeMounts:
            {{- include "coxswain.keysMounts" . | nindent 12 }}
            {{- if .Values.models }}
            - name: models # the folder and not a file of it, so that a change of the ConfigMap arrives
              mountPath: /etc/coxswain/models
              readOnly: true
            {{- end }}
            {{- with include "coxswain.cacheMount" . }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- if include "coxswain.apiKeysSecret" . }}
            - name: api-keys
              mountPath: /etc/coxswain/api-keys
              readOnly: true
            {{- end }}
            {{- if $v.tls.existingSecret }}
            - name: tls
              mountPath: /etc/coxswain/tls
              readOnly: true
            {{- end }}
            {{- if $v.state.enabled }}
            - name: state
              mountPath: /state
            {{- end }}
            {{- with $v.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        {{- include "coxswain.keysVolume" $me | nindent 8 }}
        {{- if .Values.models }}
        - name: models
          configMap:
            name: "{{ $f }}-models"
        {{- end }}
        {{- with include "coxswain.cacheVolume" . }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with include "coxswain.apiKeysSecret" . }}
        - name: api-keys
          secret:
            secretName: "{{ . }}"
            defaultMode: 0440
            items:
              - key: "{{ $v.apiKeys.key }}"
                path: "{{ $v.apiKeys.key }}"
        {{- end }}
        {{- with $v.tls.existingSecret }}
        - name: tls
          secret:
            secretName: "{{ . }}"
            defaultMode: 0440
        {{- end }}
        {{- if $v.state.enabled }}
        - name: state
          persistentVolumeClaim:
            claimName: "{{ default (printf "%s-state" $f) $v.state.existingClaim }}"
        {{- end }}
        {{- with $v.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{ end -}}
