//! `cargo bench -p bex-gateway --bench harvest`: a window of 16 MiB out of a pod, through pods/exec and the exec listener.
//!
//! Everything is on this machine: the double of the cluster, the driver's binary that reads and hashes the log, the gateway and its
//! caller.
#[path = "../tests/exec/house.rs"]
#[expect(dead_code, reason = "shared with the tests, which use more of it")]
mod house;
#[path = "../tests/exec/kubernetes/world.rs"]
#[expect(dead_code, reason = "shared with the tests, which use more of it")]
mod world;

/// What `world` expects beside itself.
mod real {
    use std::path::PathBuf;

    pub fn driver_bin() -> PathBuf {
        let dir = std::env::var_os("BEX_BIN_DIR").map(PathBuf::from);
        // <target>/release/deps/<bench>
        let beside = std::env::current_exe()
            .ok()
            .and_then(|b| Some(b.ancestors().nth(2)?.to_owned()));
        let binary = dir.or(beside).map(|dir| dir.join("bex-driver"));
        binary
            .filter(|b| b.exists())
            .expect("build bex-driver first, or name its directory in BEX_BIN_DIR")
    }
}

use std::time::{Duration, Instant};

use bex_testk8s::{Options, Style};
use http_body_util::BodyExt;
use world::{World, read};

const LOG: usize = 16 * 1024 * 1024 - 4096;
const ROUNDS: usize = 20;
/// MiB/s that the median must reach.
const FLOOR: f64 = 200.0;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        for style in [Style::V1_36, Style::V1_29] {
            let world = World::new(Options {
                style,
                ..Options::default()
            })
            .await;
            let log = world.log(LOG);
            let mut times = Vec::new();
            for _ in 0..ROUNDS {
                let begun = Instant::now();
                let got = harvest(&world).await;
                times.push(begun.elapsed());
                assert!(got >= log.len(), "whole: {got} of {}", log.len());
            }
            report(style, log.len(), &mut times);
        }
    });
}

/// The bytes of one whole answer.
async fn harvest(world: &World) -> usize {
    let operation = read(0);
    let request = http::Request::post("/v1/exec")
        .header(
            "x-bex-exec-ticket",
            world.ticket(&operation, &world.uid, "sandbox"),
        )
        .body(http_body_util::Full::new(house::body(&operation).into()))
        .expect("a request");
    let mut answer = world.house.begin(request).await;
    assert_eq!(answer.status(), 200);
    let mut bytes = 0;
    while let Some(frame) = answer.body_mut().frame().await {
        bytes += frame
            .expect("not broken")
            .into_data()
            .map_or(0, |data| data.len());
    }
    bytes
}

fn report(style: Style, bytes: usize, times: &mut [Duration]) {
    times.sort_unstable();
    let rate = |time: Duration| bytes as f64 / 1048576.0 / time.as_secs_f64();
    let (best, median, worst) = (times[0], times[times.len() / 2], times[times.len() - 1]);
    println!(
        "{style:?}: 16 MiB in {median:?} (median of {}), {:.0} MiB/s; best {:.0}, worst {:.0}; floor {FLOOR:.0} {}",
        times.len(),
        rate(median),
        rate(best),
        rate(worst),
        if rate(median) < FLOOR {
            "missed"
        } else {
            "met"
        }
    );
}
