{{/* The chart's name in names and labels. */}}
{{- define "bex.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The prefix of every object's name; short enough for what follows it. */}}
{{- define "bex.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "bex.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "bex.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects the pods of one component. Takes {root, component}. */}}
{{- define "bex.selector" -}}
app.kubernetes.io/name: {{ include "bex.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of an object. Takes {root, component}. */}}
{{- define "bex.labels" -}}
{{ include "bex.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* An image by digest, else by tag. Takes {root, image}. */}}
{{- define "bex.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "bex.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* A pod of ours is nobody and may nothing. */}}
{{- define "bex.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "bex.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  privileged: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* A variable from a key of a Secret. Takes {name, secret, key}. */}}
{{- define "bex.secretEnv" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef: {name: {{ .secret | quote }}, key: {{ .key | quote }}}
{{- end -}}

{{/* What a gateway drains within, and the time in which traffic is led elsewhere. */}}
{{- define "bex.grace" -}}
{{- add .Values.shutdown.preStopSeconds .Values.shutdown.drainSeconds -}}
{{- end -}}

{{- define "bex.preStop" -}}
{{- if gt (int .Values.shutdown.preStopSeconds) 0 }}
lifecycle:
  preStop:
    # the images have no shell
    sleep: {seconds: {{ .Values.shutdown.preStopSeconds }}}
{{- end }}
{{- end -}}

{{/* Probes of the admin port. The first proves the start: keys, grants and schema are checked before a port is bound. */}}
{{- define "bex.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: admin}
  periodSeconds: 2
  failureThreshold: 30
livenessProbe:
  httpGet: {path: /healthz, port: admin}
  periodSeconds: 10
  timeoutSeconds: 2
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 2
{{- end -}}

{{/* The database's authority as a volume and where it is mounted. */}}
{{- define "bex.caVolume" -}}
- name: database-ca
  configMap: {name: {{ .Values.database.ca.configMap | quote }}, items: [{key: {{ .Values.database.ca.key | quote }}, path: ca.crt}]}
{{- end -}}

{{- define "bex.caMount" -}}
- {name: database-ca, mountPath: /etc/bex/database, readOnly: true}
{{- end -}}

{{- define "bex.caPath" -}}
/etc/bex/database/ca.crt
{{- end -}}

{{/* What every streamUrl begins with. */}}
{{- define "bex.publicUrl" -}}
{{- if .Values.gateway.publicUrl -}}
{{ .Values.gateway.publicUrl }}
{{- else if .Values.ingress.enabled -}}
{{ ternary "https" "http" (ne .Values.ingress.attach.tlsSecret "") }}://{{ .Values.ingress.attach.host }}
{{- else -}}
{{- fail "gateway.publicUrl is needed without an ingress" -}}
{{- end -}}
{{- end -}}

{{/* Pods spread over nodes and zones where they can. Takes {root, component}. */}}
{{- define "bex.spread" -}}
topologySpreadConstraints:
  {{- range tuple "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "bex.selector" $ | nindent 8 }}
  {{- end }}
{{- end -}}

{{- define "bex.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* Egress rule: names are resolved. */}}
{{- define "bex.dnsEgress" -}}
- to:
    {{- toYaml .Values.networkPolicies.dns | nindent 4 }}
  ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
{{- end -}}

{{/* Egress rule: the database. */}}
{{- define "bex.databaseEgress" -}}
- to:
    {{- toYaml .Values.database.peers | nindent 4 }}
  ports:
    {{- range .Values.database.ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end -}}

{{/* Egress rule: the cluster's API server. */}}
{{- define "bex.clusterApiEgress" -}}
- to:
    {{- toYaml .Values.networkPolicies.clusterApi.peers | nindent 4 }}
  ports:
    {{- range .Values.networkPolicies.clusterApi.ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end -}}

{{/* Egress rule: the collector of traces, where there is one. */}}
{{- define "bex.tracesEgress" -}}
{{- with .Values.traces }}
{{- if .url }}
- to:
    {{- toYaml .peers | nindent 4 }}
  ports: [{protocol: TCP, port: {{ .port }}}]
{{- end }}
{{- end }}
{{- end -}}

{{- define "bex.tracesEnv" -}}
{{- with .Values.traces.url }}
- {name: BEX_OTLP_URL, value: {{ . | quote }}}
{{- end }}
{{- end -}}

{{/* What proves one side of a call into a sandbox, as a volume. Takes the Secret's name. */}}
{{- define "bex.execVolume" -}}
- name: exec-tls
  secret: {secretName: {{ . | quote }}, defaultMode: 0440}
{{- end -}}

{{- define "bex.execMount" -}}
- {name: exec-tls, mountPath: /etc/bex/exec, readOnly: true}
{{- end -}}

{{- define "bex.execHost" -}}
{{ include "bex.fullname" . }}-gateway-exec.{{ .Release.Namespace }}.svc
{{- end -}}
