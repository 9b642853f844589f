// SPDX-License-Identifier: GPL-2.0-only
use std::mem::MaybeUninit;
fn main() -> anyhow::Result<()> {
    let mut obj = MaybeUninit::uninit();
    let layout = onbeat_kernel::arena::Layout {
        cpus: 4,
        domains: 1,
        share_permille: 50,
        share_quantum: 1_000_000,
        tasks: 4096,
        servers: 64,
        ring: 0,
    };
    let s =
        onbeat_kernel::scheduler::Scheduler::start(&layout, std::env::args().len() > 1, &mut obj)?;
    eprintln!("attached");
    for _ in 0..20 {
        if s.exited() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let sh = s.arena.shell();
    eprintln!(
        "lock_failed {} pool_empty {} kicks {} ticks {}",
        sh.lock_failed, sh.pool_empty, sh.kicks, sh.ticks
    );
    let r = s.finish()?;
    eprintln!("{r:?}");
    Ok(())
}
