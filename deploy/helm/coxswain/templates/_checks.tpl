{{/* Refuses a variable that is set twice: the value in use would be random, and Helm 4 cannot apply it.
(dict "env" LIST "where" "worker.extraEnv") */}}
{{- define "coxswain.checkEnv" -}}
{{- $seen := list -}}
{{- range .env -}}
{{- if has .name $seen -}}
{{- fail (printf "%s: %s is set twice, by the chart or in this list. Remove it" $.where .name) -}}
{{- end -}}
{{- $seen = append $seen .name -}}
{{- end -}}
{{- end -}}

{{/* Refuses values that contradict each other, which the schema cannot express. Each error says what to change. These are values of the
release; `modelChecks` has those of one model. */}}
{{- define "coxswain.releaseChecks" -}}
{{- $v := .Values -}}
{{- if and $v.models (eq $v.cache.kind "emptyDir") -}}
{{- fail "models with cache.kind emptyDir: gateways read the models' tokenizers from the cache and download nothing. Set cache.kind to pvc, or to hostPath with a folder that all nodes share" -}}
{{- end -}}
{{- if and (eq $v.cache.kind "hostPath") (not $v.cache.hostPath) -}}
{{- fail "cache.kind hostPath needs cache.hostPath, a folder of each node" -}}
{{- end -}}
{{- if and $v.cache.existingClaim (ne $v.cache.kind "pvc") -}}
{{- fail (printf "cache.existingClaim is not used with cache.kind %s: set cache.kind to pvc" $v.cache.kind) -}}
{{- end -}}
{{- if and (eq $v.cache.kind "pvc") (eq $v.cache.accessMode "ReadOnlyMany") (not $v.cache.existingClaim) -}}
{{- fail "cache.accessMode ReadOnlyMany: no pod could write the model to a new claim. Set cache.existingClaim to a claim that has the model" -}}
{{- end -}}
{{- if and $v.redis.url (or $v.redis.enabled $v.redis.existingSecret) -}}
{{- fail "Set one of redis.enabled, redis.url and redis.existingSecret. Only redis.enabled and redis.existingSecret can be combined" -}}
{{- end -}}
{{- if and $v.redis.enabled (eq $v.redis.key "password") -}}
{{- fail "redis.key password: with redis.enabled this name is reserved for the password. Use another name for the URL, for example url" -}}
{{- end -}}
{{- if and $v.gateway.state.enabled (ne (include "coxswain.gatewayReplicas" .) "1") (ne (include "coxswain.gatewayReplicas" .) "0") (not $v.gateway.autoscaling.enabled) -}}
{{- fail "gateway.state: gateways do not share uploaded files and batches. Set gateway.replicas to 1" -}}
{{- end -}}
{{- if and $v.gateway.state.enabled $v.gateway.autoscaling.enabled -}}
{{- fail "gateway.state: gateways do not share uploaded files and batches. Turn gateway.autoscaling off" -}}
{{- end -}}
{{- if include "coxswain.seccompMissing" . -}}
{{- fail "seccompProfile.type Localhost needs seccompProfile.localhostProfile, the name of a file in /var/lib/kubelet/seccomp of each node" -}}
{{- end -}}
{{- if and $v.gateway.autoscaling.enabled (gt (int $v.gateway.autoscaling.minReplicas) (int $v.gateway.autoscaling.maxReplicas)) -}}
{{- fail (printf "gateway.autoscaling.minReplicas %d is more than gateway.autoscaling.maxReplicas %d" (int $v.gateway.autoscaling.minReplicas) (int $v.gateway.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- if and $v.metrics.serviceMonitor $v.metrics.podMonitor -}}
{{- fail "metrics.serviceMonitor and metrics.podMonitor together would count everything twice. Set one of the two" -}}
{{- end -}}
{{- if and $v.service.nodePort (eq $v.service.type "ClusterIP") -}}
{{- fail "service.nodePort: a Service of type ClusterIP has no node port. Set service.type to NodePort" -}}
{{- end -}}
{{- if eq $v.admin.key (include "coxswain.adminKey" (dict "ctx" $ "part" "worker")) -}}
{{- fail "admin.key and admin.metricsKey have the same name, so every pod would get the key that controls the cluster. Use two names" -}}
{{- end -}}
{{- if and $v.httpRoute.enabled (not $v.httpRoute.parentRefs) -}}
{{- fail "httpRoute has no Gateway: set httpRoute.parentRefs, for example [{name: GATEWAY}]" -}}
{{- end -}}
{{- $pool := default dict $v.inferencePool -}}
{{- if and $pool.enabled (not $pool.endpointPicker.name) -}}
{{- fail "inferencePool has no endpoint picker: set inferencePool.endpointPicker.name to its Service" -}}
{{- end -}}
{{- if and $pool.enabled $v.gateway.tls.existingSecret -}}
{{- fail "inferencePool with gateway.tls: an InferencePool has no HTTPS to its endpoints. Leave gateway.tls.existingSecret empty" -}}
{{- end -}}
{{- if and $pool.enabled (include "coxswain.apiKeysSecret" .) (not $v.gateway.config.metrics_public) -}}
{{- fail "inferencePool: the endpoint picker reads /metrics of the gateways without a key, so it would see no load. Set gateway.config.metrics_public to true" -}}
{{- end -}}
{{- if and $v.route.enabled (eq $v.route.termination "passthrough") (not $v.gateway.tls.existingSecret) -}}
{{- fail "route.termination passthrough: the gateways have no certificate. Set gateway.tls.existingSecret, or route.termination to edge" -}}
{{- end -}}
{{- if and $v.route.enabled (ne $v.route.termination "passthrough") $v.gateway.tls.existingSecret -}}
{{- fail "route.termination must be passthrough with gateway.tls, because the gateways speak HTTPS: set route.termination to passthrough" -}}
{{- end -}}
{{- if eq (int (default 0 $v.gateway.config.ssl_cert_reqs)) 2 -}}
{{- fail "gateway.config.ssl_cert_reqs 2: the probes of Kubernetes have no certificate, so no gateway would become ready. Use 1, which checks the certificates that clients send, and API keys" -}}
{{- end -}}
{{- $admin := list (dict "name" "COX_ADMIN_KEY_FILE") -}}
{{- $redis := include "coxswain.redisEnv" . | fromYamlArray -}}
{{- include "coxswain.checkEnv" (dict "env" (concat $admin $redis $v.gateway.extraEnv) "where" "gateway.extraEnv") -}}
{{- end -}}

{{- define "coxswain.modelChecks" -}}
{{- $v := .Values -}}
{{- $world := include "coxswain.world" . | int -}}
{{- if regexMatch "^[A-Za-z0-9+.-]+://[^/?#]*@" $v.model.name -}}
{{- fail "model.name contains a user or a password, which would be readable in a ConfigMap. Use modelHf.existingSecret, modelS3.existingSecret, or a claim with the model (cache.existingClaim)" -}}
{{- end -}}
{{- if and $v.head.standby (not (include "coxswain.usesRedis" .)) -}}
{{- fail "head.standby needs a Redis: set redis.enabled, redis.url or redis.existingSecret" -}}
{{- end -}}
{{- $ranks := int $v.worker.ranks -}}
{{- $workers := mul (include "coxswain.workerReplicas" . | int) $ranks | int -}}
{{- if and (include "coxswain.workerReplicas" .) (gt $workers 0) (lt $workers $world) (not $v.elasticTp.enabled) -}}
{{- fail (printf "worker.replicas %d is less than the %d workers of one replica of the model (worker.tp %d x worker.pp %d%s), so no request could be served. Raise worker.replicas, or set elasticTp.enabled" (int $v.worker.replicas) $world (int $v.worker.tp) (int $v.worker.pp) (gt $ranks 1 | ternary (printf ", worker.ranks %d in each pod" $ranks) "")) -}}
{{- end -}}
{{- range $pool, $n := $v.worker.pools -}}
{{- if gt (mod (int $n) (include "coxswain.podsPerGroup" $ | int)) 0 -}}
{{- fail (printf "worker.pools.%s %d is not a multiple of the %s pods of one replica of the model. Pools have no spares" $pool (int $n) (include "coxswain.podsPerGroup" $)) -}}
{{- end -}}
{{- end -}}
{{- if and $v.worker.pools (or $v.autoscaling.enabled (ne $v.worker.kind "StatefulSet") $v.worker.config.role) -}}
{{- fail "worker.pools cannot be combined with autoscaling.enabled, worker.kind LeaderWorkerSet or worker.config.role. Remove the one or the other" -}}
{{- end -}}
{{- if and (gt (mod $world $ranks) 0) (gt (mod $ranks $world) 0) -}}
{{- fail (printf "worker.ranks %d and the %d workers of one replica of the model (worker.tp %d x worker.pp %d): one must be a multiple of the other, otherwise replicas would share pods" $ranks $world (int $v.worker.tp) (int $v.worker.pp)) -}}
{{- end -}}
{{- if and (eq (include "coxswain.device" .) "cuda") (gt (int $v.worker.gpus) 0) (ne (int $v.worker.gpus) $ranks) -}}
{{- fail (printf "worker.gpus %d and worker.ranks %d: each rank uses one GPU, so the two must be equal" (int $v.worker.gpus) $ranks) -}}
{{- end -}}
{{- $device := include "coxswain.device" . -}}
{{- if and (eq $device "cuda") (eq (int $v.worker.gpus) 0) -}}
{{- fail "worker.device cuda needs a GPU for each worker: set worker.gpus to 1" -}}
{{- end -}}
{{- if and (ne $device "cuda") (gt (int $v.worker.gpus) 0) -}}
{{- fail (printf "worker.gpus %d with worker.device %s: the GPUs would be reserved but not used. Set worker.device to cuda, or worker.gpus to 0" (int $v.worker.gpus) $device) -}}
{{- end -}}
{{- if and (eq $device "cuda") $v.image.digest (not $v.worker.image.digest) (not $v.worker.image.tag) -}}
{{- fail "image.digest names one image, and workers with worker.device cuda use another one. Also set worker.image.digest or worker.image.tag" -}}
{{- end -}}
{{- if include "coxswain.sameNode" . -}}
{{- range $label, $of := $v.worker.nodeSelector -}}
{{- with get $v.gateway.nodeSelector $label -}}
{{- if ne $of . -}}
{{- fail (printf "workers and gateways share a ReadWriteOnce claim and need one node, but nodeSelector asks for two (%s: %s, %s). Set cache.accessMode to ReadWriteMany with a class that supports it, or cache.kind to emptyDir" $label $of .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (gt (int $v.autoscaling.minGroups) (int $v.autoscaling.maxGroups)) -}}
{{- fail (printf "autoscaling.minGroups %d is more than autoscaling.maxGroups %d" (int $v.autoscaling.minGroups) (int $v.autoscaling.maxGroups)) -}}
{{- end -}}
{{- if and (include "coxswain.scalesToZero" .) (eq $v.autoscaling.kind "hpa") -}}
{{- fail "autoscaling.minGroups 0 with autoscaling.kind hpa: an HPA keeps at least one pod. Set autoscaling.kind to keda, or minGroups to 1" -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (eq $v.autoscaling.kind "keda") $v.head.standby (not $v.autoscaling.prometheusUrl) -}}
{{- fail "autoscaling.kind keda with head.standby: the standby head does not answer KEDA. Set autoscaling.prometheusUrl, so that KEDA asks Prometheus" -}}
{{- end -}}
{{- if and (eq $v.worker.kind "LeaderWorkerSet") (include "coxswain.workerReplicas" .) (gt (mod (int $v.worker.replicas) (include "coxswain.podsPerGroup" . | int)) 0) -}}
{{- fail (printf "worker.kind LeaderWorkerSet makes whole replicas of the model: worker.replicas %d is not a multiple of %s" (int $v.worker.replicas) (include "coxswain.podsPerGroup" .)) -}}
{{- end -}}
{{- $admin := list (dict "name" "COX_ADMIN_KEY_FILE") -}}
{{- $redis := include "coxswain.redisEnv" . | fromYamlArray -}}
{{- include "coxswain.checkEnv" (dict "env" (concat $admin $redis $v.head.extraEnv) "where" "head.extraEnv") -}}
{{- $pooled := $v.worker.pools | empty | ternary . (merge (dict "Pool" "prefill") .) -}}
{{- include "coxswain.checkEnv" (dict "env" (include "coxswain.workerEnv" $pooled | fromYamlArray) "where" "worker.extraEnv") -}}
{{- include "coxswain.checkEnv" (dict "env" (include "coxswain.pullEnv" . | fromYamlArray) "where" "model.pullEnv") -}}
{{- end -}}
