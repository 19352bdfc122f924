{{/* Pod of a worker, for any object that makes it. (dict "ctx" $ "part" "worker") */}}
{{- define "coxswain.workerGrace" -}}
{{- $t := .Values.worker.config.drain_timeout -}}
{{- add (kindIs "invalid" $t | ternary 30 (int $t)) 15 -}}
{{- end -}}

{{- define "coxswain.workerEnv" -}}
{{- $v := .Values.worker -}}
# The pod's number gives its replica and rank, so a pod that is made again gets its old place.
{{- if .Pool }}
# Both pools have a pod 0, so their pods have no number and the head chooses their places.
- name: COX_ROLE
  value: {{ .Pool }}
{{- else if eq $v.kind "StatefulSet" }}
- name: COX_ORDINAL
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['apps.kubernetes.io/pod-index']
{{- end }}
- name: COX_COMM_HOST
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- with .Values.nccl.socketIfname }}
- name: NCCL_SOCKET_IFNAME
  value: {{ . | quote }}
{{- end }}
{{- with .Values.nccl.ibHca }}
- name: NCCL_IB_HCA
  value: {{ . | quote }}
{{- end }}
{{- with .Values.nccl.debug }}
- name: NCCL_DEBUG
  value: {{ . | quote }}
{{- end }}
{{- with $v.extraEnv }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{/* Resources of a worker, with its GPUs and, if configured, its RDMA devices. */}}
{{- define "coxswain.workerResources" -}}
{{- $v := .Values.worker -}}
{{- $r := deepCopy $v.resources -}}
{{- $limits := default dict $r.limits -}}
{{- if gt (int $v.gpus) 0 -}}{{- $_ := set $limits $v.gpuResource (int $v.gpus) -}}{{- end -}}
{{- with .Values.nccl.rdmaResource -}}{{- $_ := set $limits . 1 -}}{{- end -}}
{{- $_ := set $r "limits" $limits -}}
{{- toYaml $r -}}
{{- end -}}

{{/* Places ranks close together if a topology is set, because they talk in every step. Pods of a LeaderWorkerSet have a label of their
group, so each group is placed by itself. Pods of a StatefulSet have only numbers, so all workers of a release are placed
together. */}}
{{- define "coxswain.workerAffinity" -}}
{{- $v := .ctx.Values.worker -}}
{{- $near := dict -}}
{{- with $v.topologyKey -}}
{{- $term := dict "topologyKey" . "labelSelector" (dict "matchLabels" (include "coxswain.selector" $ | fromYaml)) -}}
{{- if eq $v.kind "LeaderWorkerSet" -}}{{- $_ := set $term "matchLabelKeys" (list "leaderworkerset.sigs.k8s.io/group-key") -}}{{- end -}}
{{- $near = dict "podAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100 "podAffinityTerm" $term))) -}}
{{- end -}}
{{- include "coxswain.affinity" (dict "ctx" .ctx "part" "worker" "base" $near) -}}
{{- end -}}

{{- define "coxswain.workerPod" -}}
{{- $ := .ctx -}}
{{- $v := $.Values.worker -}}
{{- $ranks := int $v.ranks -}}
{{ include "coxswain.podCommon" . }}
{{- with include "coxswain.workerAffinity" . }}
{{ . }}
{{- end }}
{{- with $v.runtimeClassName }}
runtimeClassName: "{{ . }}"
{{- end }}
terminationGracePeriodSeconds: {{ include "coxswain.workerGrace" $ }}
{{- if include "coxswain.pulls" $ }}
initContainers:
  {{- include "coxswain.pullContainer" . | nindent 2 }}
{{- end }}
containers:
  - name: worker
    image: {{ include "coxswain.image" . }}
    imagePullPolicy: {{ $.Values.image.pullPolicy }}
    {{- if gt $ranks 1 }}
    args: [workers, --ranks, {{ $ranks | quote }}, --config, /etc/coxswain/config/worker.yaml]
    {{- else }}
    args: [worker, --config, /etc/coxswain/config/worker.yaml]
    {{- end }}
    env:
      {{- include "coxswain.workerEnv" $ | nindent 6 }}
    ports:
      - name: admin
        containerPort: 7001
      {{- if gt $ranks 1 }}
      {{- range $i := until $ranks }}
      - name: "rank-{{ $i }}"
        containerPort: {{ add 7002 $i }}
      {{- end }}
      {{- end }}
      - name: ranks
        containerPort: 7100
      - name: kv
        containerPort: 7200
    # Allows for the time to read the weights.
    startupProbe:
      {{- include "coxswain.probe" (dict "at" (dict "path" "/livez" "port" "admin") "probe" $v.probes.startup) | nindent 6 }}
    livenessProbe:
      {{- include "coxswain.probe" (dict "at" (dict "path" "/livez" "port" "admin") "probe" $v.probes.liveness) | nindent 6 }}
    # Ready when its replica serves or it is a spare. So a rolling update replaces one replica after the other.
    readinessProbe:
      {{- include "coxswain.probe" (dict "at" (dict "path" "/readyz" "port" "admin") "probe" $v.probes.readiness) | nindent 6 }}
    securityContext:
      {{- include "coxswain.containerSecurity" $ | nindent 6 }}
      {{- if $.Values.nccl.ipcLock }}
        add: [IPC_LOCK]
      {{- end }}
    resources:
      {{- include "coxswain.workerResources" $ | nindent 6 }}
    volumeMounts:
      {{- include "coxswain.keysMounts" $ | nindent 6 }}
      - name: shm
        mountPath: /dev/shm
      {{- with include "coxswain.cacheMount" $ }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- if and $.Values.lora.enabled $.Values.lora.existingClaim }}
      - name: lora
        mountPath: {{ $.Values.lora.root | quote }}
        readOnly: true
      {{- end }}
      {{- with $v.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  {{- include "coxswain.keysVolume" . | nindent 2 }}
  - name: shm
    emptyDir:
      medium: Memory
      sizeLimit: {{ $v.shmSize }}
  {{- with include "coxswain.cacheVolume" $ }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- if and $.Values.lora.enabled $.Values.lora.existingClaim }}
  - name: lora
    persistentVolumeClaim:
      claimName: "{{ $.Values.lora.existingClaim }}"
      readOnly: true
  {{- end }}
  {{- with $v.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
