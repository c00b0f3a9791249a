//! The REST verbs of the contract. One file per resource; every one reads its request in the same order: who calls, may
//! they, does it exist for them, is the body right, then one call of the store.

pub(crate) mod attach_ticket;
mod error;
pub(crate) mod exec;
pub(crate) mod executions;
pub(crate) mod export;
mod extract;
pub(crate) mod holds;
mod layers;
mod lifecycle;
pub(crate) mod machines;
pub(crate) mod priming;
pub(crate) mod proof;
pub(crate) mod remote;
pub(crate) mod replay;
pub(crate) mod revocations;
mod sandbox_calls;
mod secret_literal;
pub mod serve;
pub(crate) mod sessions;
mod settle_wait;
pub(crate) mod transcript;
pub(crate) mod turns;
mod ui;
mod validate;
pub(crate) mod views;

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, post, put};
use bex_proto::problem::Code;
use bex_store::Db;
use bex_store::sessions::SessionRow;

use crate::auth::{Authenticator, Caller};
use crate::export::Exporter;
use crate::metrics::{HttpMetrics, RemoteMetrics};
use crate::notices::Notices;
use crate::package::SharedPackager;
use crate::profiles::Profiles;
use crate::proof::ProofRing;
use crate::remote::{Announcer, Builders};
use crate::tickets::AttachTickets;

pub use error::ApiError;
pub use remote::Reports;
pub use sandbox_calls::{Activity, SandboxCalls};
pub use ui::{Ui, UiFault};

/// Everything the handlers share.
pub struct Api {
    /// The store.
    pub db: Db,
    /// Who may call.
    pub auth: Authenticator,
    /// What may run.
    pub profiles: Arc<Profiles>,
    /// Mints attach tickets.
    pub tickets: AttachTickets,
    /// Asks sandboxes, through the gateway.
    pub sandboxes: Arc<dyn SandboxCalls>,
    /// What other processes announced.
    pub notices: Notices,
    /// Makes exports.
    pub exports: Exporter,
    /// Signs statements, where the deployment has keys for it.
    pub proof: Option<Arc<ProofRing>>,
    /// Days that sessions and audit rows are kept where a workspace says nothing; 0: for ever.
    pub retention_days: u32,
    /// Live sessions of one workspace.
    pub live_limit: u32,
    /// How long the turns verb waits for a settle: [`bex_proto::limits::TURN_VERB_WAIT`], less in tests.
    pub turn_wait: std::time::Duration,
    /// Counts and times requests.
    pub metrics: HttpMetrics,
    /// Makes turns and messages of remote sessions.
    pub builders: Builders,
    /// Counts what machines report.
    pub remote_metrics: RemoteMetrics,
    /// Tells viewers of remote sessions' events.
    pub announcer: Announcer,
    /// Reports of machines that are worked on at once.
    pub reports: Reports,
    /// Makes replay packages, where the deployment has a place for them.
    pub packages: Option<SharedPackager>,
}

/// The router and the list of its routes from one table, so that the OpenAPI document can be compared with it.
macro_rules! routes {
    ($($method:ident $path:literal => $handler:path;)+) => {
        /// Method and path of every route.
        pub const ROUTES: &[(&str, &str)] = &[$((stringify!($method), $path)),+];

        fn routes() -> Router<Arc<Api>> {
            Router::new()$(.route($path, $method($handler)))+
        }
    };
}

routes! {
    post "/v1/agent-sessions" => sessions::create;
    get "/v1/agent-sessions" => sessions::list;
    get "/v1/agent-sessions/{id}" => sessions::get;
    delete "/v1/agent-sessions/{id}" => sessions::delete;
    post "/v1/agent-sessions/{id}/turns" => turns::begin;
    get "/v1/agent-sessions/{id}/turns" => turns::list;
    post "/v1/agent-sessions/{id}/turns/{turn}/stop" => turns::stop;
    post "/v1/agent-sessions/{id}/cancel" => lifecycle::cancel;
    post "/v1/agent-sessions/{id}/archive" => lifecycle::archive;
    post "/v1/agent-sessions/{id}/unarchive" => lifecycle::unarchive;
    post "/v1/agent-sessions/{id}/attach-ticket" => attach_ticket::mint;
    get "/v1/agent-sessions/{id}/transcript" => transcript::read;
    post "/v1/agent-sessions/{id}/exec" => exec::run;
    get "/v1/agent-sessions/{id}/priming" => priming::read;
    get "/v1/agent-sessions/{id}/export" => export::read;
    get "/v1/agent-sessions/{id}/proof" => proof::read;
    post "/v1/agent-sessions/{id}/legal-hold" => holds::hold;
    delete "/v1/agent-sessions/{id}/legal-hold" => holds::release;
    get "/v1/workspaces/{workspaceId}/retention" => holds::retention;
    post "/v1/workspaces/{workspaceId}/retention" => holds::set_retention;
    delete "/v1/workspaces/{workspaceId}" => holds::delete_workspace;
    post "/v1/revocations" => revocations::create;
    get "/v1/agent-sessions/{id}/messages" => remote::messages::of_agent;
    post "/v1/machines" => machines::register;
    get "/v1/machines" => machines::list;
    get "/v1/machines/{id}" => machines::get;
    post "/v1/machines/{id}/rotate" => machines::rotate;
    post "/v1/machines/{id}/revoke" => machines::revoke;
    post "/v1/machine/rotate" => machines::rotate_own;
    post "/v1/machine/heartbeat" => remote::machine::heartbeat;
    get "/v1/machine/commands" => remote::machine::commands;
    post "/v1/machine/commands/{id}" => remote::machine::answer;
    post "/v1/remote-sessions" => remote::sessions::create;
    get "/v1/remote-sessions" => remote::sessions::list;
    get "/v1/remote-sessions/{id}" => remote::sessions::get;
    delete "/v1/remote-sessions/{id}" => remote::sessions::delete;
    post "/v1/remote-sessions/{id}/archive" => remote::sessions::archive;
    post "/v1/remote-sessions/{id}/unarchive" => remote::sessions::unarchive;
    post "/v1/remote-sessions/{id}/legal-hold" => remote::sessions::hold;
    delete "/v1/remote-sessions/{id}/legal-hold" => remote::sessions::release;
    post "/v1/remote-sessions/{id}/rebuild" => remote::sessions::rebuild;
    post "/v1/remote-sessions/{id}/attach-ticket" => remote::sessions::ticket;
    post "/v1/remote-sessions/{id}/chat" => remote::commands::chat;
    post "/v1/remote-sessions/{id}/abort" => remote::commands::abort;
    post "/v1/remote-sessions/{id}/stop" => remote::commands::stop;
    post "/v1/remote-sessions/{id}/pause" => remote::commands::pause;
    post "/v1/remote-sessions/{id}/resume" => remote::commands::resume;
    post "/v1/remote-sessions/{id}/permission" => remote::commands::permission;
    post "/v1/remote-sessions/{id}/output" => remote::output::report;
    get "/v1/remote-sessions/{id}/output" => remote::output::read;
    post "/v1/remote-sessions/{id}/import" => remote::output::import;
    post "/v1/remote-sessions/{id}/status" => remote::machine::status;
    post "/v1/remote-sessions/{id}/usage" => remote::machine::usage;
    get "/v1/remote-sessions/{id}/messages" => remote::messages::of_remote;
    get "/v1/remote-sessions/{id}/turns" => remote::messages::turns;
    put "/v1/executions/{id}" => executions::runs::record;
    get "/v1/executions" => executions::runs::list;
    get "/v1/executions/{id}" => executions::runs::get;
    delete "/v1/executions/{id}" => executions::runs::delete;
    put "/v1/executions/{id}/nodes/{nodeId}" => executions::nodes::record;
    get "/v1/executions/{id}/nodes" => executions::nodes::list;
    post "/v1/findings" => executions::findings::record;
    get "/v1/findings" => executions::findings::list;
    post "/v1/usage" => executions::usage::record;
    get "/v1/usage" => executions::usage::list;
    put "/v1/workflows/{configId}/versions/{version}" => executions::versions::record::<executions::versions::Workflows>;
    get "/v1/workflows/{configId}/versions/{version}" => executions::versions::get::<executions::versions::Workflows>;
    get "/v1/workflows/{configId}/versions" => executions::versions::list::<executions::versions::Workflows>;
    put "/v1/exec-specs/{configId}/versions/{version}" => executions::versions::record::<executions::versions::ExecSpecs>;
    get "/v1/exec-specs/{configId}/versions/{version}" => executions::versions::get::<executions::versions::ExecSpecs>;
    get "/v1/exec-specs/{configId}/versions" => executions::versions::list::<executions::versions::ExecSpecs>;
    put "/v1/model-configs/{configId}/versions/{version}" => executions::versions::record::<executions::versions::ModelConfigs>;
    get "/v1/model-configs/{configId}/versions/{version}" => executions::versions::get::<executions::versions::ModelConfigs>;
    get "/v1/model-configs/{configId}/versions" => executions::versions::list::<executions::versions::ModelConfigs>;
    put "/v1/agent-configs/{configId}/versions/{version}" => executions::versions::record::<executions::versions::AgentConfigs>;
    get "/v1/agent-configs/{configId}/versions/{version}" => executions::versions::get::<executions::versions::AgentConfigs>;
    get "/v1/agent-configs/{configId}/versions" => executions::versions::list::<executions::versions::AgentConfigs>;
    get "/replay/by-execution/{id}" => replay::by_execution;
    get "/replay/by-conversation/{id}" => replay::by_conversation;
    get "/replay/by-run/{id}" => replay::by_run;
    get "/replay/objects/{org}/{of}/{file}" => replay::fetch;
    get "/.well-known/bex-proof-keys.json" => proof::keys;
    get "/openapi.json" => crate::openapi::serve;
}

/// The whole service without a dashboard.
pub fn router(api: Arc<Api>) -> Router {
    router_with(api, None)
}

/// The whole service: routes, the dashboard where there is one, problems for what is no route, and the layers around all of it.
pub fn router_with(api: Arc<Api>, ui: Option<Ui>) -> Router {
    let metrics = api.metrics.clone();
    let router = routes()
        .with_state(api)
        .merge(ui::routes(ui))
        .fallback(|| async { ApiError::from(Code::NotFound) })
        .method_not_allowed_fallback(|| async { ApiError::from(Code::MethodNotAllowed) });
    layers::around(router, metrics)
}

impl Api {
    /// A session of one of the caller's workspaces. Another's, one that never was and a malformed id are the same.
    async fn session_of(&self, caller: &Caller, id: &str) -> Result<SessionRow, ApiError> {
        let id = id.parse().map_err(|_| Code::NotFound)?;
        let row = self.db.session(&id).await?.ok_or(Code::NotFound)?;
        if caller.acts_for(&row.workspace) {
            Ok(row)
        } else {
            Err(Code::NotFound.into())
        }
    }
}
