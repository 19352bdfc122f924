{{/* Where models lie, who fetches them, and where pods have to be because of it. */}}

{{/* Whether pods fetch the model: not the null one, not a path, and not what the image has. */}}
{{- define "coxswain.pulls" -}}
{{- $n := .Values.model.name -}}
{{- if not (or (eq .Values.cache.kind "none") (eq $n "null") (hasPrefix "/" $n) (hasPrefix "file:" $n)) -}}true{{- end -}}
{{- end -}}

{{/* Whether pods have the volume. Nobody waits for a claim that would stay empty; one that was named may have a path's model. */}}
{{- define "coxswain.hasCache" -}}
{{- $c := .Values.cache -}}
{{- if eq $c.kind "pvc" -}}
{{- if or $c.existingClaim (include "coxswain.pulls" .) -}}true{{- end -}}
{{- else if ne $c.kind "none" -}}true{{- end -}}
{{- end -}}

{{/* A claim cannot be changed: another class or access mode is another claim, which an upgrade can make. */}}
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

{{/* Access modes with commas between them: of a claim that is there its own, or cache.accessMode. (dict "found" CLAIM "said" "ReadWriteOnce") */}}
{{- define "coxswain.accessModes" -}}
{{- join "," (dig "spec" "accessModes" (list .said) (default dict .found)) -}}
{{- end -}}

{{- define "coxswain.cacheModes" -}}
{{- $c := .Values.cache -}}
{{- $found := dict -}}
{{- if $c.existingClaim -}}{{- $found = lookup "v1" "PersistentVolumeClaim" .Release.Namespace $c.existingClaim -}}{{- end -}}
{{- include "coxswain.accessModes" (dict "found" $found "said" $c.accessMode) -}}
{{- end -}}

{{/* "true": only pods of one node can have the claim at the same time, and no scheduler looks at that. */}}
{{- define "coxswain.sameNode" -}}
{{- if and (eq .Values.cache.kind "pvc") (include "coxswain.hasCache" .) -}}
{{- $modes := include "coxswain.cacheModes" . -}}
{{- if not (or (contains "ReadWriteMany" $modes) (eq $modes "ReadOnlyMany")) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* Of all pods that keep that claim where it is, of whatever model or release; empty for parts without it. The Job's pod does not
have it itself: one that is lost with its node stays for as long as the node, and nobody shall wait for that.
(dict "ctx" $ "part" "worker") */}}
{{- define "coxswain.cacheLabel" -}}
{{- if and (has .part (list "worker" "gateway" "prefetch")) (include "coxswain.sameNode" .ctx) -}}
{{- $claim := include "coxswain.cacheClaim" .ctx -}}
coxswain.io/cache: {{ gt (len $claim) 63 | ternary ($claim | sha256sum | trunc 32) $claim | quote }}
{{- end -}}
{{- end -}}

{{/* What a part's affinity is: the values', or else base; and the node of the claim. A worker goes where any of its pods is, the
first one anywhere: it is what needs a special node. The others go where a worker is, so that none of them chooses before; where
there may be no workers, they go where any of its pods is.
(dict "ctx" $ "part" "gateway" "base" dict) */}}
{{- define "coxswain.affinity" -}}
{{- $v := .ctx.Values -}}
{{- $own := default dict (get $v .part) -}}
{{- $affinity := deepCopy (default .base $own.affinity) -}}
{{- with include "coxswain.cacheLabel" . -}}
{{- $match := fromYaml . -}}
{{- $fewest := $v.autoscaling.enabled | ternary $v.autoscaling.minGroups (int $v.worker.replicas) -}}
{{- if and (ne $.part "worker") (gt (int $fewest) 0) -}}
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

{{/* Taints that a part bears, as a list. Who has to be where workers are bears theirs, too. */}}
{{- define "coxswain.tolerations" -}}
{{- $own := default dict (get .ctx.Values .part) -}}
{{- $all := default list $own.tolerations -}}
{{- if include "coxswain.cacheLabel" . -}}
{{- $all = concat $all .ctx.Values.worker.tolerations | uniq -}}
{{- end -}}
{{- with $all -}}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The models' folder. With kind none the image has the model, at /cache as well: nothing is laid over it. */}}
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

{{/* Credentials of where models come from: only who fetches has them. */}}
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

{{/* `cox pull`: waits for whoever fetches already, and takes no time where the model is. (dict "ctx" $ "part" "worker") */}}
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
