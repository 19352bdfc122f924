{{/* A variable that is there twice would be the chart's or theirs by chance, and Helm 4 cannot apply it. (dict "env" LIST "where" "worker.extraEnv") */}}
{{- define "coxswain.checkEnv" -}}
{{- $seen := list -}}
{{- range .env -}}
{{- if has .name $seen -}}
{{- fail (printf "%s: %s is there already, from the chart or twice in this list" $.where .name) -}}
{{- end -}}
{{- $seen = append $seen .name -}}
{{- end -}}
{{- end -}}

{{/* Values that contradict each other: what the schema cannot say, as a sentence that says what to change. */}}
{{- define "coxswain.checks" -}}
{{- $v := .Values -}}
{{- $world := include "coxswain.world" . | int -}}
{{- if regexMatch "^[A-Za-z0-9+.-]+://[^/?#]*@" $v.model.name -}}
{{- fail "model.name has a user or a password in it, which everybody who may read ConfigMaps would see: fetch the model with modelHf.existingSecret or modelS3.existingSecret, or into a claim of your own (cache.existingClaim)" -}}
{{- end -}}
{{- if and $v.head.standby (not (include "coxswain.usesRedis" .)) -}}
{{- fail "head.standby needs a Redis that says which head serves: set redis.enabled, redis.url or redis.existingSecret" -}}
{{- end -}}
{{- if and $v.redis.url (or $v.redis.enabled $v.redis.existingSecret) -}}
{{- fail "redis: one of redis.enabled, redis.url and redis.existingSecret; only the first and the last go together" -}}
{{- end -}}
{{- if and $v.redis.enabled (eq $v.redis.key "password") -}}
{{- fail "redis.key password: with redis.enabled that is the password's name, and the URL's is another, as url" -}}
{{- end -}}
{{- $ranks := int $v.worker.ranks -}}
{{- $workers := mul (int $v.worker.replicas) $ranks | int -}}
{{- if and (include "coxswain.workerReplicas" .) (gt $workers 0) (lt $workers $world) (not $v.elasticTp.enabled) -}}
{{- fail (printf "worker.replicas %d is less than the %d workers of one group (worker.tp %d x worker.pp %d%s), so nothing would ever be served: raise worker.replicas, or set elasticTp.enabled" (int $v.worker.replicas) $world (int $v.worker.tp) (int $v.worker.pp) (gt $ranks 1 | ternary (printf ", worker.ranks %d in each pod" $ranks) "")) -}}
{{- end -}}
{{- if and (gt (mod $world $ranks) 0) (gt (mod $ranks $world) 0) -}}
{{- fail (printf "worker.ranks %d and the %d workers of one group (worker.tp %d x worker.pp %d): one has to be a multiple of the other, or groups would share pods" $ranks $world (int $v.worker.tp) (int $v.worker.pp)) -}}
{{- end -}}
{{- if and (eq (include "coxswain.device" .) "cuda") (gt (int $v.worker.gpus) 0) (ne (int $v.worker.gpus) $ranks) -}}
{{- fail (printf "worker.gpus %d and worker.ranks %d: each rank has one GPU, so they have to be the same" (int $v.worker.gpus) $ranks) -}}
{{- end -}}
{{- $device := include "coxswain.device" . -}}
{{- if and (eq $device "cuda") (eq (int $v.worker.gpus) 0) -}}
{{- fail "worker.device cuda needs a GPU for each worker: set worker.gpus to 1" -}}
{{- end -}}
{{- if and (ne $device "cuda") (gt (int $v.worker.gpus) 0) -}}
{{- fail (printf "worker.gpus %d with worker.device %s: the GPUs would be reserved and not used; set worker.device to cuda, or worker.gpus to 0" (int $v.worker.gpus) $device) -}}
{{- end -}}
{{- if and (eq $device "cuda") $v.image.digest (not $v.worker.image.digest) (not $v.worker.image.tag) -}}
{{- fail "image.digest names one image, and workers with worker.device cuda have another one: set worker.image.digest (or worker.image.tag) as well" -}}
{{- end -}}
{{- if and (eq $v.cache.kind "hostPath") (not $v.cache.hostPath) -}}
{{- fail "cache.kind hostPath needs cache.hostPath, a folder of each node" -}}
{{- end -}}
{{- if and $v.cache.existingClaim (ne $v.cache.kind "pvc") -}}
{{- fail (printf "cache.existingClaim is not used with cache.kind %s: set cache.kind to pvc" $v.cache.kind) -}}
{{- end -}}
{{- if and (eq $v.cache.kind "pvc") (eq $v.cache.accessMode "ReadOnlyMany") (not $v.cache.existingClaim) -}}
{{- fail "cache.accessMode ReadOnlyMany: nobody could fill a claim of the release's own; name one that has the model as cache.existingClaim" -}}
{{- end -}}
{{- if include "coxswain.sameNode" . -}}
{{- range $label, $of := $v.worker.nodeSelector -}}
{{- with get $v.gateway.nodeSelector $label -}}
{{- if ne $of . -}}
{{- fail (printf "workers and gateways share a claim that is ReadWriteOnce, so they need one node, and nodeSelector asks for two (%s: %s, %s): set cache.accessMode to ReadWriteMany with a class that has it, or cache.kind to emptyDir" $label $of .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $v.gateway.state.enabled (ne (include "coxswain.gatewayReplicas" .) "1") (ne (include "coxswain.gatewayReplicas" .) "0") (not $v.gateway.autoscaling.enabled) -}}
{{- fail "gateway.state: uploaded files and batches are of one gateway, another one does not know them: set gateway.replicas to 1" -}}
{{- end -}}
{{- if and $v.gateway.state.enabled $v.gateway.autoscaling.enabled -}}
{{- fail "gateway.state: uploaded files and batches are of one gateway: turn gateway.autoscaling off" -}}
{{- end -}}
{{- if and $v.gateway.apiKeys.existingSecret $v.gateway.apiKeys.generate -}}
{{- fail "gateway.apiKeys: generate makes a Secret, existingSecret names one; set one of the two" -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (gt (int $v.autoscaling.minGroups) (int $v.autoscaling.maxGroups)) -}}
{{- fail (printf "autoscaling.minGroups %d is more than autoscaling.maxGroups %d" (int $v.autoscaling.minGroups) (int $v.autoscaling.maxGroups)) -}}
{{- end -}}
{{- if and (include "coxswain.scalesToZero" .) (eq $v.autoscaling.kind "hpa") -}}
{{- fail "autoscaling.minGroups 0 with autoscaling.kind hpa: an HPA does not go below one pod (that is Kubernetes' alpha feature HPAScaleToZero); set autoscaling.kind to keda, or minGroups to 1" -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (eq $v.autoscaling.kind "keda") $v.head.standby (not $v.autoscaling.prometheusUrl) -}}
{{- fail "autoscaling.kind keda with head.standby: a head that waits has no answer, so Prometheus has to be asked: set autoscaling.prometheusUrl" -}}
{{- end -}}
{{- if and $v.gateway.autoscaling.enabled (gt (int $v.gateway.autoscaling.minReplicas) (int $v.gateway.autoscaling.maxReplicas)) -}}
{{- fail (printf "gateway.autoscaling.minReplicas %d is more than gateway.autoscaling.maxReplicas %d" (int $v.gateway.autoscaling.minReplicas) (int $v.gateway.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- if and $v.metrics.serviceMonitor $v.metrics.podMonitor -}}
{{- fail "metrics.serviceMonitor and metrics.podMonitor would count everything twice: set one of the two" -}}
{{- end -}}
{{- if and $v.service.nodePort (eq $v.service.type "ClusterIP") -}}
{{- fail "service.nodePort: a Service of type ClusterIP has none; set service.type to NodePort" -}}
{{- end -}}
{{- if eq $v.admin.key (include "coxswain.adminKey" (dict "ctx" $ "part" "worker")) -}}
{{- fail "admin.key and admin.metricsKey are one: every pod would have the key with which the cluster is led; give them two names" -}}
{{- end -}}
{{- if and $v.httpRoute.enabled (not $v.httpRoute.parentRefs) -}}
{{- fail "httpRoute belongs to no Gateway: set httpRoute.parentRefs, as [{name: GATEWAY}]" -}}
{{- end -}}
{{- if and $v.route.enabled (eq $v.route.termination "passthrough") (not $v.gateway.tls.existingSecret) -}}
{{- fail "route.termination passthrough: the gateways have no certificate; set gateway.tls.existingSecret, or route.termination to edge" -}}
{{- end -}}
{{- if and $v.route.enabled (ne $v.route.termination "passthrough") $v.gateway.tls.existingSecret -}}
{{- fail "route.termination edge, or none, speaks HTTP to gateways that speak HTTPS (gateway.tls): set route.termination to passthrough" -}}
{{- end -}}
{{- if and (eq $v.worker.kind "LeaderWorkerSet") (include "coxswain.workerReplicas" .) (gt (mod (int $v.worker.replicas) (include "coxswain.podsPerGroup" . | int)) 0) -}}
{{- fail (printf "worker.kind LeaderWorkerSet makes whole groups: worker.replicas %d is no multiple of %s" (int $v.worker.replicas) (include "coxswain.podsPerGroup" .)) -}}
{{- end -}}
{{- if eq (int (default 0 $v.gateway.config.ssl_cert_reqs)) 2 -}}
{{- fail "gateway.config.ssl_cert_reqs 2: Kubernetes' probes have no certificate, so no gateway would ever be ready; 1 looks at those that clients have, and API keys refuse the others" -}}
{{- end -}}
{{- $admin := list (dict "name" "COX_ADMIN_KEY_FILE") -}}
{{- $redis := include "coxswain.redisEnv" . | fromYamlArray -}}
{{- include "coxswain.checkEnv" (dict "env" (concat $admin $redis $v.head.extraEnv) "where" "head.extraEnv") -}}
{{- include "coxswain.checkEnv" (dict "env" (concat $admin $redis $v.gateway.extraEnv) "where" "gateway.extraEnv") -}}
{{- include "coxswain.checkEnv" (dict "env" (include "coxswain.workerEnv" . | fromYamlArray) "where" "worker.extraEnv") -}}
{{- include "coxswain.checkEnv" (dict "env" (include "coxswain.pullEnv" . | fromYamlArray) "where" "model.pullEnv") -}}
{{- end -}}
