//! `bex-api package …`: packages as files, without a service.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bex_api::config::{ConfigFault, EXIT_USAGE, package_database};
use bex_api::package::tools::{self, Complaint};
use bex_api::package::{Bounds, Builder, BuilderDeps, PackageFault, Subject, TokenSecret};
use bex_proto::Chain;
use bex_proto::WorkspaceId;
use bex_proto::package::PackageKind;
use bex_redact::{Profile, Redactor};
use bex_store::{Db, DbConfig};
use clap::{Args, Subcommand};

/// When the gate refuses.
const EXIT_REFUSED: u8 = 3;

/// What can be done with packages.
#[derive(Subcommand)]
pub enum PackageCommand {
    /// Makes a package from the store of BEX_DATABASE_URL: exit code 3 when the gate refuses
    Build(Box<BuildArgs>),
    /// Says what is in a package, without checking it
    Inspect {
        /// The package
        file: PathBuf,
    },
    /// Checks a package's schema, name and digest, and lets a gate look at it: exit code 3 when the gate refuses
    Verify {
        /// The package
        file: PathBuf,
        /// SHA-256 that it must have, as the api answered
        #[arg(long)]
        sha256: Option<String>,
    },
    /// Checks a package and keeps it, byte for byte, as a case for evaluations
    Promote {
        /// The package
        file: PathBuf,
        /// SHA-256 that it must have, as the api answered
        #[arg(long)]
        sha256: Option<String>,
        /// Where cases are kept
        #[arg(long)]
        to: PathBuf,
    },
    /// Prints the JSON Schema of packages
    Schema,
}

/// Variables of `bex-api package build`.
#[derive(Clone, Args)]
pub struct BuildArgs {
    /// Whose
    #[arg(long)]
    workspace: WorkspaceId,
    #[command(flatten)]
    of: Of,
    /// The file to write; it must not exist
    #[arg(long)]
    out: PathBuf,
    /// PostgreSQL, as the api's user
    #[arg(long, env = "BEX_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// PEM certificates that the database's certificate must chain to
    #[arg(long, env = "BEX_DATABASE_CA")]
    database_ca: Option<PathBuf>,
    /// Key of the tokens that stand for secrets: the api's own, for the same tokens
    #[arg(long, env = "BEX_PACKAGES_TOKEN_KEY", hide_env_values = true)]
    packages_token_key: Option<String>,
    /// The commit this program was built from
    #[arg(long, env = "COMMIT_SHA")]
    commit_sha: Option<String>,
}

/// Of what; one of these.
#[derive(Clone, Args)]
#[group(required = true, multiple = false)]
struct Of {
    /// An execution
    #[arg(long)]
    execution: Option<String>,
    /// An agent or remote session
    #[arg(long)]
    conversation: Option<String>,
    /// A run
    #[arg(long)]
    run: Option<String>,
}

impl Of {
    fn subject(&self) -> Option<Subject> {
        let all = [
            (PackageKind::Execution, &self.execution),
            (PackageKind::Conversation, &self.conversation),
            (PackageKind::Run, &self.run),
        ];
        let (kind, id) = all
            .into_iter()
            .find_map(|(kind, id)| id.as_deref().map(|id| (kind, id)))?;
        Subject::parse(kind, id)
    }
}

/// Does it.
pub fn run(command: PackageCommand, block: impl FnOnce(Work) -> ExitCode) -> ExitCode {
    match command {
        PackageCommand::Build(args) => match Work::from_args(&args) {
            Ok(work) => block(work),
            Err(fault) => {
                tracing::error!(
                    variable = fault.variable,
                    problem = fault.problem,
                    "the configuration is refused"
                );
                ExitCode::from(EXIT_USAGE)
            }
        },
        PackageCommand::Inspect { file } => {
            told(tools::read(&file).and_then(|p| tools::inspect(&p)))
        }
        PackageCommand::Verify { file, sha256 } => {
            told(tools::read(&file).and_then(|p| tools::verify(&p, sha256.as_deref())))
        }
        PackageCommand::Promote { file, sha256, to } => {
            let kept = tools::read(&file).and_then(|p| tools::promote(&p, sha256.as_deref(), &to));
            told(kept.map(|path| format!("{}\n", path.display())))
        }
        PackageCommand::Schema => {
            let (_, newest) = bex_proto::package::schema::PUBLISHED
                .last()
                .expect("there is one");
            crate::say(newest)
        }
    }
}

fn told(done: Result<impl std::fmt::Display, Complaint>) -> ExitCode {
    match done {
        Ok(said) => crate::say(&said.to_string()),
        Err(complaint) => {
            eprintln!("{}", Chain(&complaint));
            match complaint {
                Complaint::Gate(PackageFault::Gate(_)) => ExitCode::from(EXIT_REFUSED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// A package that is to be made.
pub struct Work {
    database: DbConfig,
    secret: TokenSecret,
    commit: Option<String>,
    workspace: WorkspaceId,
    subject: Subject,
    out: PathBuf,
}

impl Work {
    fn from_args(args: &BuildArgs) -> Result<Self, ConfigFault> {
        let fault = |variable, problem: &str| ConfigFault {
            variable,
            problem: problem.to_owned(),
        };
        const KEY: &str = "BEX_PACKAGES_TOKEN_KEY";
        let key = args.packages_token_key.as_deref();
        let key = key.ok_or_else(|| fault(KEY, "is not set"))?;
        let kinds = "--execution, --conversation or --run";
        Ok(Self {
            database: package_database(&args.database_url, &args.database_ca)?,
            secret: TokenSecret::parse(key).map_err(|problem| fault(KEY, problem))?,
            commit: args.commit_sha.clone(),
            workspace: args.workspace.clone(),
            subject: args
                .of
                .subject()
                .ok_or_else(|| fault(kinds, "is no id of that kind"))?,
            out: args.out.clone(),
        })
    }

    /// Makes it and writes it; the exit code.
    pub async fn build(self) -> anyhow::Result<ExitCode> {
        let db = Db::connect(&self.database)?;
        bex_store::check_schema(&db).await?;
        let dir = match self.out.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        let builder = Builder::new(BuilderDeps {
            db: db.clone(),
            secret: self.secret,
            profile: Profile::Package,
            redactor: Redactor::new,
            spool_dir: dir.to_owned(),
            commit: self.commit,
            bounds: Bounds::default(),
        })?;
        let built = builder.build(&self.subject, &self.workspace).await;
        db.close();
        let mut built = match built {
            Ok(built) => built,
            Err(PackageFault::Gate(ids)) => {
                eprintln!("{}", PackageFault::Gate(ids));
                return Ok(ExitCode::from(EXIT_REFUSED));
            }
            Err(fault) => return Err(fault.into()),
        };
        let mut file = File::create_new(&self.out)?;
        std::io::copy(&mut built.file, &mut file)?;
        file.flush()?;
        println!("{} {} bytes", built.name, built.bytes);
        Ok(ExitCode::SUCCESS)
    }
}
