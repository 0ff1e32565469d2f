{{- define "unalike.name" -}}
{{- $name := ternary .Release.Name (printf "%s-unalike" .Release.Name) (contains "unalike" .Release.Name) }}
{{- $name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "unalike.selector" -}}
app.kubernetes.io/name: unalike
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "unalike.labels" -}}
{{ include "unalike.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}
