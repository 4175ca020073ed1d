{{/* The name of everything in the release's namespace. */}}
{{- define "oasiskv.name" -}}
{{- if contains "oasiskv" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-oasiskv" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* The name of what has no namespace: unique among releases of one name. */}}
{{- define "oasiskv.clusterName" -}}
{{ printf "%s:%s" .Release.Namespace (include "oasiskv.name" .) }}
{{- end }}

{{- define "oasiskv.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "oasiskv.prometheusCa" -}}
{{- $secret := .Values.prometheus.caSecret }}
{{- $configMap := .Values.prometheus.caConfigMap }}
{{- if and $secret $configMap }}{{ fail "prometheus.caSecret and prometheus.caConfigMap: set one of them" }}{{ end }}
{{- with $secret }}
- secret: {name: {{ .name }}, items: [{key: {{ .key }}, path: ca.crt}]}
{{- end }}
{{- with $configMap }}
- configMap: {name: {{ .name }}, items: [{key: {{ .key }}, path: ca.crt}]}
{{- end }}
{{- end }}

{{/* Sources of the volume with what a Prometheus that asks who is asking wants. */}}
{{- define "oasiskv.prometheusFiles" -}}
{{- with .Values.prometheus.bearerTokenSecret }}
- secret: {name: {{ .name }}, items: [{key: {{ .key }}, path: token}]}
{{- end }}
{{- include "oasiskv.prometheusCa" . }}
{{- end }}

{{- define "oasiskv.selector" -}}
app.kubernetes.io/name: oasiskv-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* oasiskv_deployment, oasiskv_component and oasiskv_revision, which rules and dashboards need. */}}
{{- define "oasiskv.relabelings" -}}
- {action: labelmap, regex: __meta_kubernetes_pod_label_oasiskv_io_(.+), replacement: oasiskv_$1}
{{- end }}

{{- define "oasiskv.labels" -}}
{{ include "oasiskv.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
