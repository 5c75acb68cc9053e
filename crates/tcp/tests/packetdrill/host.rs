//! What shell commands before a script set in the kernel, as parameters of one end.

use nilometer_tcp::config::IdleRestart;
use nilometer_tcp::{Algorithm, Config};

use super::script::Script;

/// The parameters of the scripts' host: Linux as the scripts' `defaults.sh` leaves it, changed by
/// the script's own commands.
///
/// Commands that change nothing visible to a state machine are ignored: caches of metrics, how many
/// segments one `sendmsg` passes to the network card, offloads, memory limits.
///
/// # Errors
///
/// If a command requests something else.
pub fn configure(script: &Script) -> Result<Config, String> {
    let mut config = Config::linux();
    config.window_scale = Some(8);
    config.mss = 1460;
    config.auto_read = false;
    config.idle_restart = IdleRestart::Never;
    for line in script.commands() {
        for word in line.split_whitespace() {
            if let Some((name, value)) = word.split_once('=') {
                let name = name.rsplit(['/', '.']).next().unwrap_or(name);
                set(&mut config, name, value.trim_matches('"'))?;
            }
        }
        if line.contains("hystart_detect") && !line.contains("echo 3") {
            return Err(format!("command '{line}'"));
        }
    }
    Ok(config)
}

fn set(config: &mut Config, name: &str, value: &str) -> Result<(), String> {
    match (name, value) {
        ("tcp_timestamps", "0" | "1") => config.timestamps = value == "1",
        ("tcp_ecn", "0" | "1" | "2") => config.ecn = value != "0",
        ("tcp_congestion_control", "cubic") => config.algorithm = Algorithm::LinuxCubic,
        ("tcp_congestion_control", "reno") => config.algorithm = Algorithm::Reno,
        ("tcp_min_tso_segs" | "tcp_tso_win_divisor" | "tcp_wmem" | "tcp_rmem", _) => {}
        ("tcp_pacing_ss_ratio" | "tcp_pacing_ca_ratio" | "tcp_no_metrics_save", _) => {}
        ("tcp_reordering", "3") => {}
        ("tcp_early_retrans", "0") => config.tail_probe = false,
        ("tcp_slow_start_after_idle", "0" | "1") => {
            let restarts = value == "1";
            config.idle_restart = if restarts { IdleRestart::Decay } else { IdleRestart::Never };
        }
        _ => return Err(format!("{name}={value}")),
    }
    Ok(())
}
