//! `bex-testpg run [--fsync] -- CMD…`: starts a server, names it in `BEX_TEST_PG_URL`, runs CMD, stops the server, exits
//! with CMD's code. With `BEX_TEST_POOLER=pgbouncer` a pgbouncer stands before it, named in `BEX_TEST_PG_POOLED_URL`.

use std::process::{Command, ExitCode};

use bex_testpg::{Fsync, Options, POOLED_URL_VARIABLE, TestPg, URL_VARIABLE};

/// EX_USAGE of sysexits.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (fsync, command) = match args
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["run", "--", program, rest @ ..] => (Fsync::Off, (program.to_string(), to_owned(rest))),
        ["run", "--fsync", "--", program, rest @ ..] => {
            (Fsync::On, (program.to_string(), to_owned(rest)))
        }
        _ => {
            eprintln!("usage: bex-testpg run [--fsync] -- CMD [ARG…]");
            return ExitCode::from(USAGE);
        }
    };
    let pg = match TestPg::start_new(Options { fsync }) {
        Ok(pg) => pg,
        Err(error) => {
            eprintln!("bex-testpg: {error}");
            return ExitCode::FAILURE;
        }
    };
    let status = Command::new(&command.0)
        .args(&command.1)
        .env(URL_VARIABLE, pg.url("postgres"))
        .env(POOLED_URL_VARIABLE, pg.pooled_url("postgres"))
        .status();
    drop(pg);
    match status {
        Ok(status) => ExitCode::from(
            status
                .code()
                .and_then(|code| u8::try_from(code).ok())
                .unwrap_or(1),
        ),
        Err(error) => {
            eprintln!("bex-testpg: cannot run {}: {error}", command.0);
            ExitCode::FAILURE
        }
    }
}

fn to_owned(args: &[&str]) -> Vec<String> {
    args.iter().map(|arg| (*arg).to_owned()).collect()
}
