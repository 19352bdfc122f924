{{/* The place of models, the pods that download them, and the nodes that these pods therefore need. */}}

{{/* "true" when pods download the model: it is not null, not a path, and not in the image. */}}
{{- define "coxswain.pulls" -}}
{{- $n := .Values.model.name -}}
{{- if not (or (eq .Values.cache.kind "none") (eq $n "null") (hasPrefix "/" $n) (hasPrefix "file:" $n)) -}}true{{- end -}}
{{- end -}}

{{/* "true" when pods mount the volume. A claim that would stay empty is not mounted. An existing claim may hold the model of a path. Gateways
of several models always mount it, so that a model can be added without replacing them. */}}
{{- define "coxswain.hasCache" -}}
{{- $c := .Values.cache -}}
{{- if eq $c.kind "pvc" -}}
{{- if or $c.existingClaim .Values.models (include "coxswain.pulls" .) -}}true{{- end -}}
{{- else if ne $c.kind "none" -}}true{{- end -}}
{{- end -}}

{{/* Name of the claim. A claim cannot be changed, so another class or access mode gives another name, and an upgrade can create it. */}}
{{- define "coxswain.cacheClaim" -}}
{{- $c := .Values.cache -}}
{{- if $c.existingClaim -}}
{{- $c.existingClaim -}}
{{- else if and (eq $c.accessMode "ReadWriteOnce") (not $c.storageClass) -}}
{{- printf "%s-cache" (include "coxswain.fullname" .) -}}
{{- else -}}
{{- printf "%s-cache-%s" (include "coxswain.fullname" .) (printf "%s %s" $c.accessMode $c.storageClass | sha256sum | trunc 8) -}}
{{- end -}}
{{- end -}}

{{/* Access modes, separated by commas: those of the existing claim, otherwise cache.accessMode. (dict "found" CLAIM "said" "ReadWriteOnce") */}}
{{- define "coxswain.accessModes" -}}
{{- join "," (dig "spec" "accessModes" (list .said) (default dict .found)) -}}
{{- end -}}

{{- define "coxswain.cacheModes" -}}
{{- $c := .Values.cache -}}
{{- $found := dict -}}
{{- if $c.existingClaim -}}{{- $found = lookup "v1" "PersistentVolumeClaim" .Release.Namespace $c.existingClaim -}}{{- end -}}
{{- include "coxswain.accessModes" (dict "found" $found "said" $c.accessMode) -}}
{{- end -}}

{{/* "true" when all pods with the claim must be on one node. The scheduler does not check this. */}}
{{- define "coxswain.sameNode" -}}
{{- if and (eq .Values.cache.kind "pvc") (include "coxswain.hasCache" .) -}}
{{- $modes := include "coxswain.cacheModes" . -}}
{{- if not (or (contains "ReadWriteMany" $modes) (eq $modes "ReadOnlyMany")) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* Label of all pods that bind the claim to its node, in any model or release; empty for other parts. The Job's pod does not have the
label: if its node is lost, the pod remains as long as the node object, and other pods must not wait for it.
(dict "ctx" $ "part" "worker") */}}
{{- define "coxswain.cacheLabel" -}}
{{- if and (has .part (list "worker" "gateway" "prefetch")) (include "coxswain.sameNode" .ctx) -}}
{{- $claim := include "coxswain.cacheClaim" .ctx -}}
coxswain.io/cache: {{ gt (len $claim) 63 | ternary ($claim | sha256sum | trunc 32) $claim | quote }}
{{- end -}}
{{- end -}}

{{/* "true" when some model always has a worker. */}}
{{- define "coxswain.hasWorkers" -}}
{{- $contexts := dict "own" . -}}
{{- if .Values.models -}}{{- $contexts = dict -}}{{- include "coxswain.contexts" (dict "ctx" . "into" $contexts) -}}{{- end -}}
{{- range $contexts -}}
{{- $v := .Values -}}
{{- if gt (int ($v.autoscaling.enabled | ternary $v.autoscaling.minGroups (int $v.worker.replicas))) 0 -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* Tolerations of all workers, as a list. */}}
{{- define "coxswain.workerTolerations" -}}
{{- $all := list -}}
{{- $contexts := dict "own" . -}}
{{- if .Values.models -}}{{- $contexts = dict -}}{{- include "coxswain.contexts" (dict "ctx" . "into" $contexts) -}}{{- end -}}
{{- range $contexts -}}{{- $all = concat $all .Values.worker.tolerations | uniq -}}{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* Affinity of a part: the one in the values, otherwise `base`, plus the node of the claim. The first worker may go to any node,
because workers need special nodes; later workers follow pods with the claim. Other parts go to the node of a worker, so that they
do not choose first. If there may be no workers, they follow any pod with the claim. (dict "ctx" $ "part" "gateway" "base" dict) */}}
{{- define "coxswain.affinity" -}}
{{- $v := .ctx.Values -}}
{{- $own := default dict (get $v .part) -}}
{{- $affinity := deepCopy (default .base $own.affinity) -}}
{{- with include "coxswain.cacheLabel" . -}}
{{- $match := fromYaml . -}}
{{- if and (ne $.part "worker") (include "coxswain.hasWorkers" $.ctx) -}}
{{- $_ := set $match "app.kubernetes.io/component" "worker" -}}
{{- end -}}
{{- $pods := default dict $affinity.podAffinity -}}
{{- $terms := default list $pods.requiredDuringSchedulingIgnoredDuringExecution -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $match) -}}
{{- $_ := set $pods "requiredDuringSchedulingIgnoredDuringExecution" (append $terms $term) -}}
{{- $_ := set $affinity "podAffinity" $pods -}}
{{- end -}}
{{- with $affinity -}}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* Tolerations of a part, as a list. A part that must be on the workers' node also gets the workers' tolerations. */}}
{{- define "coxswain.tolerations" -}}
{{- $own := default dict (get .ctx.Values .part) -}}
{{- $all := default list $own.tolerations -}}
{{- if include "coxswain.cacheLabel" . -}}
{{- $all = concat $all (include "coxswain.workerTolerations" .ctx | fromYamlArray) | uniq -}}
{{- end -}}
{{- with $all -}}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* Volume with the models. With kind none the image has the model at /cache, so nothing is mounted over it. */}}
{{- define "coxswain.cacheVolume" -}}
{{- $c := .Values.cache -}}
{{- if include "coxswain.hasCache" . -}}
- name: cache
  {{- if eq $c.kind "pvc" }}
  persistentVolumeClaim:
    claimName: "{{ include "coxswain.cacheClaim" . }}"
    {{- if eq (include "coxswain.cacheModes" .) "ReadOnlyMany" }}
    readOnly: true
    {{- end }}
  {{- else if eq $c.kind "hostPath" }}
  hostPath:
    path: {{ $c.hostPath | quote }}
    type: Directory
  {{- else }}
  emptyDir:
    sizeLimit: {{ $c.size }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "coxswain.cacheMount" -}}
{{- if include "coxswain.hasCache" . -}}
- name: cache
  mountPath: /cache
{{- end -}}
{{- end -}}

{{/* Credentials for downloads of models. Only the containers that download get them. */}}
{{- define "coxswain.pullEnv" -}}
- name: HOME
  value: /tmp
{{- with .Values.modelHf.existingSecret }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef:
      name: "{{ . }}"
      key: "{{ $.Values.modelHf.key }}"
{{- end }}
{{- with .Values.modelHf.endpoint }}
- name: HF_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- with .Values.modelS3.endpoint }}
- name: AWS_ENDPOINT_URL
  value: {{ . | quote }}
{{- end }}
{{- with .Values.modelS3.region }}
- name: AWS_REGION
  value: {{ . | quote }}
{{- end }}
{{- with .Values.modelS3.existingSecret }}
{{- range list "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" }}
- name: "{{ . }}"
  valueFrom:
    secretKeyRef:
      name: "{{ $.Values.modelS3.existingSecret }}"
      key: "{{ . }}"
{{- end }}
- name: AWS_SESSION_TOKEN
  valueFrom:
    secretKeyRef:
      name: "{{ . }}"
      key: AWS_SESSION_TOKEN
      optional: true
{{- end }}
{{- with .Values.model.pullEnv }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{/* `cox pull` as an init container. It waits for a download in progress, and returns at once if the model is there.
(dict "ctx" $ "part" "worker") */}}
{{- define "coxswain.pullContainer" -}}
- name: pull
  image: {{ include "coxswain.image" . }}
  imagePullPolicy: {{ .ctx.Values.image.pullPolicy }}
  args: [pull, {{ .ctx.Values.model.name | quote }}, --cache-dir, /cache]
  env:
    {{- include "coxswain.pullEnv" .ctx | nindent 4 }}
  securityContext:
    {{- include "coxswain.containerSecurity" .ctx | nindent 4 }}
  resources:
    {{- toYaml .ctx.Values.model.pullResources | nindent 4 }}
  volumeMounts:
    {{- include "coxswain.cacheMount" .ctx | nindent 4 }}
    - name: tmp
      mountPath: /tmp
{{- end -}}
