{{- define "coxswain.part.head" -}}
{{- $f := include "coxswain.fullname" . -}}
{{- $me := dict "ctx" $ "part" "head" -}}
{{- $v := .Values.head -}}
apiVersion: v1
kind: Service
metadata:
  name: "{{ $f }}-head"
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
spec:
  # Gives each pod a name of its own, also when it is not ready: workers and gateways try each address until a head answers.
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    {{- include "coxswain.selector" $me | nindent 4 }}
  ports:
    - name: control
      port: 7000
      targetPort: control
    - name: admin
      port: 8265
      targetPort: admin
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: "{{ $f }}-head"
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
spec:
  serviceName: "{{ $f }}-head"
  replicas: {{ include "coxswain.headReplicas" . }}
  podManagementPolicy: Parallel
  revisionHistoryLimit: 5
  selector:
    matchLabels:
      {{- include "coxswain.selector" $me | nindent 6 }}
  template:
    metadata:
      {{- include "coxswain.podMetadata" $me | nindent 6 }}
    spec:
      {{- include "coxswain.podCommon" $me | nindent 6 }}
      {{- $away := dict "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100 "podAffinityTerm" (dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "coxswain.selector" $me | fromYaml)))))) }}
      {{- with default ($v.standby | ternary $away dict) $v.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      terminationGracePeriodSeconds: 30
      containers:
        - name: head
          image: {{ include "coxswain.image" $me }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          args: [head, --config, /etc/coxswain/config/head.yaml]
          env:
            # for `cox status` and similar commands in this container
            - name: COX_ADMIN_KEY_FILE
              value: /etc/coxswain/admin/{{ .Values.admin.key }}
            {{- if $v.standby }}
            # name in the lease, for `cox status` at the other head
            - name: POD_NAME
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
            - name: COX_ADVERTISE_HOST
              value: $(POD_NAME).{{ $f }}-head
            {{- end }}
            {{- with include "coxswain.redisEnv" . }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- with $v.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - name: control
              containerPort: 7000
            - name: admin
              containerPort: 8265
          livenessProbe:
            {{- include "coxswain.probe" (dict "at" (dict "path" "/livez" "port" "admin") "probe" $v.probes.liveness) | nindent 12 }}
          # Ready when it listens, also while it waits for the lease. It does not depend on ready replicas of the model.
          readinessProbe:
            {{- include "coxswain.probe" (dict "at" (dict "path" "/livez" "port" "admin") "probe" $v.probes.readiness) | nindent 12 }}
          securityContext:
            {{- include "coxswain.containerSecurity" . | nindent 12 }}
          resources:
            {{- toYaml $v.resources | nindent 12 }}
          volumeMounts:
            {{- include "coxswain.keysMounts" . | nindent 12 }}
            {{- with $v.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        {{- include "coxswain.keysVolume" $me | nindent 8 }}
        {{- with $v.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{ end -}}
