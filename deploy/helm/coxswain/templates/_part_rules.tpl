{{- define "coxswain.part.rules" -}}
{{- if .Values.metrics.rules }}
{{- $f := include "coxswain.fullname" . -}}
{{- /* This release's pods of one part. */}}
{{- $head := printf "namespace=%q, pod=~%q" .Release.Namespace (printf "%s-head-.*" $f) }}
{{- $gateway := printf "namespace=%q, pod=~%q" .Release.Namespace (printf "%s-gateway-.*" $f) }}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: "{{ $f }}"
  labels:
    {{- include "coxswain.labels" (dict "ctx" $ "part" "rules") | nindent 4 }}
    {{- with .Values.metrics.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  groups:
    - name: "{{ $f }}"
      rules:
        - alert: CoxswainHeadGone
          expr: absent(coxswain_uptime_seconds{ {{- $head -}} })
          for: 2m
          labels: {severity: critical, release: {{ .Release.Name | quote }}}
          annotations:
            summary: The head of {{ $f }} gives no metrics.
            runbook: Streams pause and go on when it is back. `kubectl -n {{ .Release.Namespace }} describe pod {{ $f }}-head-0` says why it does not start; head.standby would have another one take over.
        - alert: CoxswainNothingServes
          expr: max(coxswain_groups_ready{ {{- $head -}} }) == 0{{ if include "coxswain.scalesToZero" . }} unless max(coxswain_head_desired_workers{ {{- $head -}} }) == 0{{ end }}
          for: 5m
          labels: {severity: critical, release: {{ .Release.Name | quote }}}
          annotations:
            summary: No group of workers of {{ $f }} serves.
            runbook: Requests wait and get 503. `kubectl -n {{ .Release.Namespace }} exec sts/{{ $f }}-head -- cox status` says which workers are here and what they wait for; pods that are Pending lack a node with room.
        - alert: CoxswainGatewayWithoutHead
          expr: min by (pod) (coxswain_gateway_head_link_up{ {{- $gateway -}} }) == 0
          for: 2m
          labels: {severity: warning, release: {{ .Release.Name | quote }}}
          annotations:
            summary: {{ printf "{{ $labels.pod }} does not reach the head." | quote }}
            runbook: Look at its log for head_unreachable (a NetworkPolicy, DNS) or peer_refused at the head (keys that are not the head's).
        - alert: CoxswainQueueDoesNotEnd
          expr: max(vllm:num_requests_waiting{ {{- $head -}} }) > 0 and max(coxswain_head_desired_workers{ {{- $head -}} }) > max(coxswain_workers{ {{- $head -}} })
          for: 15m
          labels: {severity: warning, release: {{ .Release.Name | quote }}}
          annotations:
            summary: Requests wait at {{ $f }} and more workers are wanted than there are.
            runbook: Raise worker.replicas by whole groups, or autoscaling.maxGroups; the head's GET /scale says why.
        - alert: CoxswainFirstTokenLate
          expr: histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket{ {{- $gateway -}} }[5m]))) > {{ .Values.metrics.firstTokenSeconds }}
          for: 15m
          labels: {severity: warning, release: {{ .Release.Name | quote }}}
          annotations:
            summary: {{ printf "Of a hundred first tokens of %s five take longer than {{ $value }} s." $f | quote }}
            runbook: Requests wait (more groups), or prompts are long beside many streams (head.config.max_num_batched_tokens, prefill and decode groups).
        - alert: CoxswainCacheFull
          expr: max(vllm:kv_cache_usage_perc{ {{- $head -}} }) > 0.95 and sum(rate(vllm:num_preemptions_total{ {{- $head -}} }[5m])) > 0
          for: 15m
          labels: {severity: warning, release: {{ .Release.Name | quote }}}
          annotations:
            summary: The KV cache of {{ $f }} is full and sequences are computed again.
            runbook: More groups, a larger KV cache (worker.config.kv_cache_memory_bytes, kv_cache_dtype), or fewer sequences at once (head.config.max_num_seqs).
        - alert: CoxswainWorkersLost
          expr: sum(increase(coxswain_worker_losses_total{ {{- $head -}} }[30m])) > {{ mul 2 (include "coxswain.world" . | int) }}
          labels: {severity: warning, release: {{ .Release.Name | quote }}}
          annotations:
            summary: Workers of {{ $f }} are lost again and again.
            runbook: recent_failures in `cox status --json` and the pods' last states (OOMKilled, a liveness probe, the node) say why.
        - alert: CoxswainGroupsDoNotForm
          expr: sum(increase(coxswain_formation_failures_total{ {{- $head -}} }[15m])) > 5
          labels: {severity: warning, release: {{ .Release.Name | quote }}}
          annotations:
            summary: Groups of {{ $f }} fail to form.
            runbook: Ranks do not reach each other (ports between workers, NCCL's interface in nccl.socketIfname) or have too little memory; `cox events` has the reason of each.
        - alert: CoxswainGroupShrunk
          expr: max(coxswain_groups_shrunk{ {{- $head -}} }) > 0
          for: 15m
          labels: {severity: info, release: {{ .Release.Name | quote }}}
          annotations:
            summary: A group of {{ $f }} serves with fewer ranks than TP.
            runbook: It waits for a worker; a pod that is Pending or Terminating on a lost node is what it lacks.
        - alert: CoxswainStraggler
          expr: max(coxswain_stragglers{ {{- $head -}} }) > 0
          for: 15m
          labels: {severity: info, release: {{ .Release.Name | quote }}}
          annotations:
            summary: A worker makes its group of {{ $f }} slow.
            runbook: "`cox status` names it. Its node is hot, throttled or shared: `cox drain POD` gives its work to others."
        {{- if .Values.head.standby }}
        - alert: CoxswainNoStandby
          expr: min(coxswain_head_store_reached{ {{- $head -}} }) == 0 or count(coxswain_head_serves{ {{- $head -}} }) < 2
          for: 5m
          labels: {severity: warning, release: {{ .Release.Name | quote }}}
          annotations:
            summary: No second head of {{ $f }} could take over.
            runbook: Redis is away, or a head's pod is. What runs goes on.
        {{- end }}
        {{- if .Values.gateway.tls.existingSecret }}
        - alert: CoxswainCertificateEnds
          expr: min(coxswain_gateway_tls_certificate_expires_timestamp_seconds{ {{- $gateway -}} }) - time() < 7 * 86400
          labels: {severity: warning, release: {{ .Release.Name | quote }}}
          annotations:
            summary: The certificate of {{ $f }} ends within a week.
            runbook: Renew the Secret {{ .Values.gateway.tls.existingSecret }}; gateways read it by themselves.
        {{- end }}
{{- end }}
{{ end -}}
