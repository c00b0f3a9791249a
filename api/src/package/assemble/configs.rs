//! The versions of configurations that ran.

use bex_proto::execution::ConfigKind;
use bex_proto::time;
use bex_store::packages::ExecutionSource;
use serde::Serialize;
use serde_json::value::RawValue;

use super::Assembly;
use crate::package::PackageFault;
use crate::package::document::json;

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConfigView {
    id: String,
    version: String,
    body: Box<RawValue>,
    recorded_at: String,
}

impl Assembly<'_> {
    /// Writes every configuration of an execution.
    pub(super) async fn configs(
        &mut self,
        execution: &ExecutionSource,
    ) -> Result<(), PackageFault> {
        let agents = self
            .snapshot
            .node_agents(self.workspace, &execution.id)
            .await?;
        let (mut first, mut elements) = (None, self.bench.elements()?);
        for (n, (id, version)) in agents.into_iter().enumerate() {
            let named = (Some(id), version);
            let config = self
                .config(ConfigKind::AgentConfig, &named, "agentConfigs")
                .await?;
            if n == 0 {
                first = config.clone();
            }
            elements.items(config.into_iter().collect()).await?;
        }
        self.document.member("agentConfig", &first).await?;
        self.document.array_of("agentConfigs", elements).await?;
        for (kind, named, section) in [
            (ConfigKind::Workflow, &execution.workflow, "workflow"),
            (ConfigKind::ExecSpec, &execution.spec, "execSpec"),
            (ConfigKind::ModelConfig, &execution.model, "modelConfig"),
        ] {
            let config = self.config(kind, named, section).await?;
            self.document.member(section, &config).await?;
        }
        Ok(())
    }

    /// One version; what is named and not there is noted.
    async fn config(
        &mut self,
        kind: ConfigKind,
        (id, version): &(Option<String>, Option<String>),
        section: &str,
    ) -> Result<Option<ConfigView>, PackageFault> {
        let Some(id) = id else { return Ok(None) };
        let Some(version) = version else {
            self.note(
                section,
                format!("Which version of {id} ran was not recorded."),
            );
            return Ok(None);
        };
        let found = self
            .snapshot
            .config(self.workspace, kind, id, version)
            .await?;
        let Some(row) = found else {
            self.note(
                section,
                format!("Version {version} of {id} was not recorded."),
            );
            return Ok(None);
        };
        self.own("config_versions", &row.workspace)?;
        Ok(Some(ConfigView {
            id: row.id,
            version: row.version,
            body: json(row.body),
            recorded_at: time::format(row.recorded_at),
        }))
    }
}
