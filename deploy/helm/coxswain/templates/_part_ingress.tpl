{{- define "coxswain.part.ingress" -}}
{{- $f := include "coxswain.fullname" . -}}
{{- $me := dict "ctx" $ "part" "gateway" -}}
{{- $i := .Values.ingress -}}
{{- if $i.enabled }}
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: "{{ $f }}"
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
  {{- /* gateways with a certificate speak only HTTPS; another controller needs another annotation */}}
  {{- $https := .Values.gateway.tls.existingSecret | empty | ternary dict (dict "nginx.ingress.kubernetes.io/backend-protocol" "HTTPS") }}
  {{- with mergeOverwrite $https $i.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with $i.className }}
  ingressClassName: "{{ . }}"
  {{- end }}
  rules:
    - {{ with $i.host }}host: {{ . | quote }}
      {{ end }}http:
        paths:
          - path: {{ $i.path | quote }}
            pathType: Prefix
            backend:
              service:
                name: "{{ $f }}"
                port:
                  name: http
  {{- with $i.tlsSecret }}
  tls:
    - secretName: "{{ . }}"
      {{- with $i.host }}
      hosts: [{{ . | quote }}]
      {{- end }}
  {{- end }}
{{- end }}
{{- $r := .Values.route -}}
{{- if $r.enabled }}
---
apiVersion: route.openshift.io/v1
kind: Route
metadata:
  name: "{{ $f }}"
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
  {{- with $r.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with $r.host }}
  host: {{ . | quote }}
  {{- end }}
  to:
    kind: Service
    name: "{{ $f }}"
    weight: 100
  port:
    targetPort: http
  {{- if $r.termination }}
  tls:
    termination: {{ $r.termination }}
    insecureEdgeTerminationPolicy: Redirect
  {{- end }}
{{- end }}
{{- $h := .Values.httpRoute -}}
{{- $pool := default dict .Values.inferencePool -}}
{{- if $h.enabled }}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: "{{ $f }}"
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
  {{- with $h.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  parentRefs:
    {{- toYaml $h.parentRefs | nindent 4 }}
  {{- with $h.hostnames }}
  hostnames:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  rules:
    - matches:
        - path:
            type: PathPrefix
            value: {{ $h.path | quote }}
      # An answer is a stream that lasts as long as the model generates.
      timeouts:
        request: {{ $h.timeout }}
        backendRequest: {{ $h.timeout }}
      backendRefs:
        - name: "{{ $f }}"
          {{- if $pool.enabled }}
          group: inference.networking.k8s.io
          kind: InferencePool
          {{- else }}
          port: {{ .Values.service.port }}
          {{- end }}
{{- end }}
{{- if $pool.enabled }}
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata:
  name: "{{ $f }}"
  labels:
    {{- include "coxswain.labels" $me | nindent 4 }}
spec:
  selector:
    matchLabels:
      {{- include "coxswain.selector" $me | nindent 6 }}
  targetPorts:
    - number: 8000
  endpointPickerRef:
    name: "{{ $pool.endpointPicker.name }}"
    port:
      number: {{ $pool.endpointPicker.port }}
    failureMode: {{ $pool.endpointPicker.failureMode }}
{{- end }}
{{ end -}}
