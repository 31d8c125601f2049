{{- define "csi.name" -}}
{{ .Release.Name }}
{{- end }}
{{- define "csi.labels" -}}
app.kubernetes.io/name: roadtrain-csi
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
{{- define "csi.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "csi.reaches" -}}
{{- $names := list }}
{{- range .Values.targets }}{{ $names = append $names .name }}{{ end }}
{{- join "," (.Values.node.reaches | default $names) }}
{{- end }}
