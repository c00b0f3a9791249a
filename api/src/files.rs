//! The commands that work on exported files.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use bex_api::config::FileArgs;
use bex_api::export::{self, Checked};
use bex_api::proof::{Jwks, PublicKeys};
use bex_store::{Db, DbConfig, check_schema};

/// Checks a file and says on standard output what it holds, or on standard error what does not fit.
pub(crate) fn verify(args: &FileArgs) -> ExitCode {
    let told = checked(args).and_then(|checked| {
        ensure_signed(args, &checked)?;
        Ok(checked)
    });
    match told {
        Ok(checked) => {
            println!("{}", describe(args, &checked));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Takes a file in.
pub(crate) async fn import(database: DbConfig, args: FileArgs) -> anyhow::Result<()> {
    let checked = checked(&args)?;
    ensure_signed(&args, &checked)?;
    let db = Db::connect(&database)?;
    check_schema(&db).await?;
    let keys = keys(args.keys.as_deref())?;
    let session = export::import(&db, &args.file, keys.as_ref()).await?;
    db.close();
    println!("imported {session}: {}", describe(&args, &checked));
    Ok(())
}

fn checked(args: &FileArgs) -> anyhow::Result<Checked> {
    let keys = keys(args.keys.as_deref())?;
    let file = File::open(&args.file).context("the export cannot be read")?;
    Ok(export::verify(BufReader::new(file), keys.as_ref())?)
}

fn keys(path: Option<&Path>) -> anyhow::Result<Option<PublicKeys>> {
    let Some(path) = path else { return Ok(None) };
    let text = std::fs::read(path).context("the keys cannot be read")?;
    let jwks: Jwks = serde_json::from_slice(&text).context("the keys are no JWKS")?;
    let keys = PublicKeys::of_jwks(&jwks);
    ensure!(!keys.is_empty(), "the keys hold no Ed25519 key");
    Ok(Some(keys))
}

fn ensure_signed(args: &FileArgs, checked: &Checked) -> anyhow::Result<()> {
    if !checked.signed && !args.unsigned {
        bail!(
            "nobody signed this export: whoever changed it could have made it fit again (--unsigned accepts it)"
        );
    }
    Ok(())
}

fn describe(args: &FileArgs, checked: &Checked) -> String {
    let by = match (checked.signed, &args.keys) {
        (false, _) => "not signed",
        (true, Some(_)) => "signed with a given key",
        (true, None) => "signed with a key of the file itself; --keys tells whose it is",
    };
    format!(
        "{}: {} turns, {} of them stated, {} parts, {} statements; {by}",
        checked.session, checked.turns, checked.stated, checked.parts, checked.statements
    )
}
